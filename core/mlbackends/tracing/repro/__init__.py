"""How to run a call of a trace again: oneDNN's by its own benchdnn, MKL's by a small program in C."""
