"""The verbs: each a typed function that is a call of the Python API and a command of the command line."""
