"""Losses: one file each, as sums that the loop scales by the global step's counts."""
