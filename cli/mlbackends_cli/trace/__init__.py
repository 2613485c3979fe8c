"""Traces on the command line: reading files, views as text, and commands under tracing."""
