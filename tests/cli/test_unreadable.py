"""What may not be read is reported as the system has it, and what is not JSON in words."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import pytest
from running import backends

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    pytest.skip("permissions are POSIX's", allow_module_level=True)


def as_nobody(*words: str) -> tuple[int, str]:
    """Run a command in a child without root's rights; return its exit code and what it complains of."""
    backends(*words)  # all that it imports may be in a folder of root's
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        done = backends(*words)
        os.write(writing, done.stderr.encode())
        os._exit(done.returncode)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@pytest.mark.parametrize(
    "words",
    ["info --root LOCKED", "info --root LOCKED/inner", "sdpa explain --problems LOCKED/file",
     "diff LOCKED/file -", "fleet summarize LOCKED", "trace show LOCKED/file", "audit --policy LOCKED/file",
     "doctor LOCKED"],
)  # fmt: skip
def test_a_locked_folder_is_not_called_something_else(tmp_path: Path, words: str) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    locked = tmp_path / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "file").write_text("")
    locked.chmod(0)
    try:
        code, text = as_nobody(*words.replace("LOCKED", str(locked)).split())
    finally:
        locked.chmod(0o700)

    assert code == 2
    assert "Permission denied" in text
    assert "Errno" not in text
    assert text.splitlines()[0].count(str(locked)[:60]) == 1  # long paths are shortened


@pytest.mark.parametrize(
    "data", ["x", "{", "", "[]", '{"schema": 3}', '{"schema": "backends.report/1"}', "\\xff"]
)
@pytest.mark.parametrize("words", ["diff FILE -", "fleet summarize FILE", "audit FILE --init"])
def test_what_is_no_report_is_said_in_words(tmp_path: Path, data: str, words: str) -> None:
    (tmp_path / "file").write_text(data)

    done = backends(*words.replace("FILE", str(tmp_path / "file")).split())

    raw = re.search(r"`\$|malformed|Object missing|Input data|`str`", done.stdout + done.stderr)
    assert raw is None
    assert done.returncode in (0, 2, 3)
