"""What joins us to another framework where that is installed: one file per meeting point.

No file here is an attention backend, so the folder is no registry. Nothing imports it but the framework's
own entry points and code that found the framework loaded already.
"""
