"""The machine as facts that files tell: the host, its CPU, its Python environment, its operating system."""
