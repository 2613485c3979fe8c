"""The lines of MKL, from 2019 to oneMKL 2026: their grammar, and what the arguments mean."""
