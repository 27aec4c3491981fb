"""What the four papers printed: their tables and claims as data, and the readers of both."""
