"""Traces of MKL and oneDNN: capturing, reading, adding up."""
