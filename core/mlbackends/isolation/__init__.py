"""Child processes in which foreign code runs: one protocol, one worker, one client."""
