"""Rows of each global step for the ranks that train: by Ray Data, or read from local shards."""
