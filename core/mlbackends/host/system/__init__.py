"""The operating system: its settings, its limits, and what it runs in."""
