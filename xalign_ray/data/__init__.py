"""From raw files to token shards, and from token shards to batches."""
