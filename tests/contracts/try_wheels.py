"""Install the wheel that fits, and run it: ``python tests/contracts/try_wheels.py DIST [PYTHON...]``.

pip chooses the wheel of DIST that fits; what it needs comes from the package index. Each PYTHON, this one by
default, gets an environment of its own, in which the nine checks of tests/systems/checks.py must be right
and attention compute with the library of the wheel, under Linux with the CPU's best instruction set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
CHECKS, LEVELS = TESTS / "systems" / "checks.py", TESTS / "kernels" / "native" / "levels.py"
_TAG = "from importlib.metadata import distribution as d; print(d('mlbackends').read_text('WHEEL'))"


def wrong_with(python: str, dist: Path, folder: Path) -> list[str]:
    """Return what is wrong with the wheel that fits a Python, after printing which one that is."""
    _run(python, "-m", "venv", str(folder))
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    inside = str(programs / "python")
    pip = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--no-index", "--no-deps", "--only-binary=:all:", f"--find-links={dist}", "mlbackends")
    tag = _run(inside, "-c", _TAG).partition("Tag: ")[2].split()[0]
    # ml-dtypes has no wheel for musl, and attention computes without it.
    extra = ("mlbackends", "numpy") if "musl" in tag else ("mlbackends[kernels]",)
    _run(*pip, "--only-binary=:all:", *extra)
    _run(str(programs / "backends"), "--version")
    faults = [f"pip chose {tag}"] if tag.endswith("any") else []
    if sys.platform == "linux":
        _run(inside, str(LEVELS))
    record: dict[str, Any] = json.loads(_run(inside, str(CHECKS)).splitlines()[-1])
    faults += [f"{name}: {fault}" for name, fault in record["checks"].items() if fault]
    if not record["native"]:
        faults.append("attention did not compute with the native library")
    print(f"{tag}: Python {record['python']}, {record['system']} {record['machine']}:", end=" ")
    print("; ".join(faults) or f"right, with {record['native']}", flush=True)
    return faults


def _run(*command: str) -> str:
    """Return what a command prints. Raises SystemExit with what it complained of."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir(), check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(dist: Path, *pythons: str) -> int:
    """Return 1 if something is wrong with the wheel that fits any of the Pythons."""
    faults = []
    for python in pythons or (sys.executable,):
        with tempfile.TemporaryDirectory() as folder:
            faults += wrong_with(python, dist.resolve(), Path(folder, "environment"))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
