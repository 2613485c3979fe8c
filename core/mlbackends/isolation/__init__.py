"""Child processes in which foreign code runs: one protocol, one worker, one client."""

process_is_ours = False
"""Whether nothing but our command runs in this process, so that its attributes are ours to change."""
