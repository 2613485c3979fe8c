"""Shared libraries: the search for them, their ELF headers, the loader cache and their owners."""
