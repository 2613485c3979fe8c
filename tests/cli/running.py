"""Run the installed command as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}


def backends(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
    data: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run `python -m mlbackends ARGUMENTS` with nothing of this environment but what is given."""
    return subprocess.run(
        [sys.executable, "-m", "mlbackends", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout,
        check=False,
        input=data,
        cwd=os.path.abspath(os.sep),
        env={**PLAIN, **(environment or {})},
    )


def machine(folder: Path, files: Mapping[str, str], host: str = "") -> Path:
    """Write a recorded machine into a folder: its files by their paths, and host.json."""
    for path, text in files.items():
        file = folder / "root" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "root").mkdir(exist_ok=True)
    if host:
        (folder / "host.json").write_text(host)
    return folder
