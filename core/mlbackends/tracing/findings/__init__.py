"""What a trace can reveal, in files by subject: each class is a Finder, see mlbackends.tracing.finder.

A class's name is the finding's code ("first-calls" is FirstCalls), its docstring begins with a description;
texts.toml has why it matters and what to do.
"""
