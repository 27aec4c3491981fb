"""What training reads: rows, the files they lie in, their order."""
