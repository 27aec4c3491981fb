"""Token shards: rows, their files, and their order in training."""
