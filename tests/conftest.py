"""What holds for every test."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# "python -m pytest" puts the root on the path, where our kernels/ would pass for the package of
# that name on PyPI.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
