"""Readers of raw files: one file a format family, each a generator of records."""
