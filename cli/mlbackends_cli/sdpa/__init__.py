"""The commands below `backends sdpa`: one file each."""
