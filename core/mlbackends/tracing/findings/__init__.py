"""One file per thing that a trace can give away. The file's name is the finding's code, with `-` for `_`.

A file offers `Finder`, a `Watch` of mlbackends.tracing.finder; its docstring tells the thing.
"""
