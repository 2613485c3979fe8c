"""The machine as files describe it: the host, its CPU, its Python environment, its operating system."""
