"""A format is one file: it reaches every command that can use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import backends_alone

COMMANDS = [
    ("info", "host", "--depth", "found"),
    ("flags", "list", "cudnn"),
    ("flags", "env"),
    ("explain", "device"),
    ("doctor", "HOST"),
    ("diff", "HOST", "HOST"),
    ("sdpa", "list"),
    ("sdpa", "explain", "--shape", "1,2,8,16", "--device", "cpu"),
    ("trace", "show", "LOG"),
    ("trace", "diff", "LOG", "LOG"),
]


@pytest.mark.slow
def test_a_format_of_one_file_reaches_every_command(tmp_path: Path) -> None:
    metadata = tmp_path / "yaml-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[mlbackends.cli.formats]\nlines = lines_format\n")
    (tmp_path / "lines_format.py").write_text(
        "def record(record, page):\n    return f'a {type(record).__name__}'\n"
    )
    host = Path(__file__).parents[1] / "hosts" / "wsl1-laptop.machine"
    log = tmp_path / "a.log"
    log.write_text("MKL_VERBOSE DGEMM(N,N,8,8,8,0x1,0x2,8,0x3,8,0x4,0x5,8) 1.00us CNR:OFF\n")
    places = {"HOST": str(host), "LOG": str(log)}

    for words in COMMANDS:
        arguments = [places.get(word, word) for word in words]
        done = backends_alone(*arguments, "--format", "lines", environment={"PYTHONPATH": str(tmp_path)})
        assert done.stdout.startswith("a "), (words, done.stdout, done.stderr)
