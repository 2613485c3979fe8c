"""Starting programs on chosen cores, several at a time: torch's xeon.run_cpu without torch."""
