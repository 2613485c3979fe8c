"""Install a wheel in each way that users do, in an empty home, and time it: ``install.py WHEEL [WAY...]``.

uv and pipx must be on PATH. Each way begins with nothing: no cache, no tool, no environment. "again"
is the same once more with the cache of the first. The last column is whether `man backends` then finds the
page with the folder of the command on PATH alone, as in a shell where nothing is activated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: What is typed, where the command then lies ("" where it is not kept), and how to take it away again.
WAYS = {
    "pip": (
        "python3 -m venv env && env/bin/pip install WHEEL && env/bin/backends --version",
        "env/bin",
        "rm -r env",
    ),
    "uv tool install": (
        "uv tool install WHEEL && .local/bin/backends --version",
        ".local/bin",
        "uv tool uninstall mlbackends",
    ),
    "uvx": ("uvx --from WHEEL backends --version", "", "true"),
    "pipx install": (
        "pipx install WHEEL && .local/bin/backends --version",
        ".local/bin",
        "pipx uninstall mlbackends",
    ),
    "pipx run": ("pipx run --spec WHEEL backends --version", "", "rm -rf .cache/pipx .local/pipx"),
}


def timed(script: str, home: Path) -> float:
    """Run a script in a home; returns seconds. Raises CalledProcessError, with what it printed shown."""
    left_out = ("XDG_", "VIRTUAL_ENV", "PYTHON", "PIPX_", "UV_CACHE", "UV_TOOL", "PIP_CACHE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=home,
        env={**kept, "HOME": str(home), "UV_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        done.check_returncode()
    return time.monotonic() - started


def has_manual(folder: Path) -> bool:
    """Whether man finds our page where only this folder of commands is put before the system's."""
    found = subprocess.run(
        ["man", "-w", "backends"],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    return not found.returncode


def main(wheel: str, *names: str) -> None:
    """Print a row for each way."""
    print("| way | seconds | again | `man backends` |\n| --- | ---: | ---: | --- |")
    for name in names or WAYS:
        script, folder, undo = WAYS[name]
        home = Path(tempfile.mkdtemp())
        try:
            script = script.replace("WHEEL", str(Path(wheel).resolve()))
            first = timed(script, home)
            manual = "" if not folder else "yes" if has_manual(home / folder) else "no"
            timed(undo, home)
            again = timed(script, home)
            print(f"| {name} | {first:.1f} | {again:.1f} | {manual} |", flush=True)
        finally:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
