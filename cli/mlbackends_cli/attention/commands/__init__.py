"""Commands by the words that users type; `sdpa` is a group of them."""

FOLDERS_ARE_ENTRIES = True
