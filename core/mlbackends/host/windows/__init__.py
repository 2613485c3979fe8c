"""Facts of a Windows machine: the calls that tell them, and pure code that reads what they returned."""
