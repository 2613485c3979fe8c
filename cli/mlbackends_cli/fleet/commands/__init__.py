"""Commands by the words that users type; `fleet` is a group of them."""

FOLDERS_ARE_ENTRIES = True
