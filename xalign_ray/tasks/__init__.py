"""Evaluations of an exported folder: one file a task."""
