"""One file for each command, and a folder for each group of commands."""

FOLDERS_ARE_ENTRIES = True
