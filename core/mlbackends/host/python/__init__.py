"""The metadata and files of Python packages, read as text."""
