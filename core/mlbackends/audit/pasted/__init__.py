"""Formats of texts that people paste into issues, such as torch's collect_env or a log: one file each.

A file defines

    its docstring     first line: what the text is, for "recognised: ..."
    matches(text)     returns whether the text contains something of the format, by its content alone
    read(text)        yields a `Stated` for each value, in any order; what is not stated is left out

Both get the whole text, cleaned by `paste.cleaned`, in which other things may be pasted before and after.
messages/*.toml are the error messages that `audit/messages.py` looks for.
"""
