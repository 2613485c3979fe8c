"""Starting programs on the cores of a server: `python -m mlbackends.xeon.run_cpu`."""
