"""Encoders, heads, language embeddings and the export to a plain Hugging Face folder."""
