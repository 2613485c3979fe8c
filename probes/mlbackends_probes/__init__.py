"""One file for each thing that can be detected; its name is the word that users type."""
