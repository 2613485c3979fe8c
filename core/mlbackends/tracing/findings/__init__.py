"""One file per thing that a trace can give away. The file's name is the finding's code, with `-` for `_`.

A file offers `Finder`, one of mlbackends.tracing.finder; the file's docstring describes the thing.
"""
