"""Words, pieces, tokenizers and dictionaries."""
