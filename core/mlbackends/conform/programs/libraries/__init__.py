"""One file for each library that can be asked; `serve.py` loads it by its path.

VERSION, TYPES   the library's version, and the element types of its tensors
OPERATIONS       by name, a function of tensors, and of the keywords of `arithmetic.options`
tensor, array    return an array as a tensor of an element type, and a result as an array; default: NumPy's
HINT             what avoids that it computes in a shorter type; optional
laid_out         returns a tensor in a layout; only where the library has several
"""
