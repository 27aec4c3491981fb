"""Continues a user's encoder on their data, and compares it with the encoder that it began from."""
