"""Small programs that make real calls of MKL and oneDNN. Each is run in a process of its own, traced."""
