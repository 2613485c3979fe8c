"""The kinds of devices, one file a kind: what each cannot do and may offer, each with its source."""
