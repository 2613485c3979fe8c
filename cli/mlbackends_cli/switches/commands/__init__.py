"""Commands by the words that users type; `flags` is a group of them."""

FOLDERS_ARE_ENTRIES = True
