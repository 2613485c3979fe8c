"""Commands by the words that users type; `trace` is a group of them."""

FOLDERS_ARE_ENTRIES = True
