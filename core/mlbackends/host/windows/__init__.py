"""Facts of a Windows machine: calls that return them, and pure code that reads the results."""
