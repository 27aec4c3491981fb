"""Rows and streams in pure numpy: what a row looks like. Never imports torch: it runs on hundreds of CPU workers."""
