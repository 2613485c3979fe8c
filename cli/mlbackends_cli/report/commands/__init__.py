"""Commands about this machine, one file each."""
