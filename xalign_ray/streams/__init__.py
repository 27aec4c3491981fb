"""Streams: rows as model inputs and labels, in pure numpy. Never imports torch: it runs on hundreds of CPU workers."""
