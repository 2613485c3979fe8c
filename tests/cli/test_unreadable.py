"""What may not be read is reported as the system has it, and what is not JSON in words."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from running import backends

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

if sys.platform == "win32":
    pytest.skip("permissions are POSIX's", allow_module_level=True)


@pytest.mark.parametrize(
    "words",
    ["info --root LOCKED", "info --root LOCKED/inner", "sdpa explain --problems LOCKED/file",
     "diff LOCKED/file -", "fleet summarize LOCKED", "trace show LOCKED/file", "audit --policy LOCKED/file",
     "doctor LOCKED"],
)  # fmt: skip
def test_a_locked_folder_is_not_called_something_else(
    tmp_path: Path, unprivileged: Callable[[], AbstractContextManager[None]], words: str
) -> None:
    locked = tmp_path / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "file").write_text("")
    locked.chmod(0)
    try:
        with unprivileged():
            done = backends(*words.replace("LOCKED", str(locked)).split())
    finally:
        locked.chmod(0o700)

    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    assert "Errno" not in done.stderr
    assert done.stderr.splitlines()[0].count(str(locked)[:60]) == 1  # long paths are shortened


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
