"""Private and undocumented parts of libraries that the package needs, one file a library."""
