"""The text of an output folder: parsed once, its duplicates and other languages marked, filtered by window."""
