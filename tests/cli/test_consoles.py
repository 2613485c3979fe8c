"""Consoles and pipes of Windows: characters that they lack, colours that they take, keys that are typed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_cli import terminal
from mlbackends_cli.commands.help import plain_manual

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "utf-8"])
def test_what_an_encoding_lacks_is_printed_in_ascii(encoding: str) -> None:
    command = [
        sys.executable,
        "-c",
        "from mlbackends_cli.output import write; write('a→b ✓ █▇ ± · é ☃')",
    ]
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    data = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout
    expected = {
        "cp1252": "a->b + ## ± · é ?",
        "cp437": "a->b + █# ± · é ?",
        "utf-8": "a→b ✓ █▇ ± · é ☃",
    }
    assert data == f"{expected[encoding]}\n".encode(encoding)


class Kernel:
    """kernel32 as far as consoles are concerned. accepted: the modes that the console takes."""

    def __init__(self, mode: int | None, accepted: int) -> None:
        self.mode, self.accepted = mode, accepted

    def GetConsoleMode(self, _: Any, mode: Any) -> int:  # noqa: N802  as Windows calls it
        if self.mode is not None:
            mode._obj.value = self.mode
        return self.mode is not None

    def SetConsoleMode(self, _: Any, mode: int) -> int:  # noqa: N802
        if mode & ~self.accepted:
            return 0
        self.mode = mode
        return 1


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    console = SimpleNamespace(get_osfhandle=lambda number: number)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "msvcrt", console)
        patch.setattr(os, "name", "nt")
        patch.delenv("TERM", raising=False)
        yield patch


STREAM = SimpleNamespace(isatty=lambda: True, fileno=lambda: 1)


@pytest.mark.parametrize(
    ("kernel", "takes"),
    [(Kernel(3, 7), True), (Kernel(3, 3), False), (Kernel(None, 0), False)],
    ids=["Windows 10", "an older one", "NUL"],
)
def test_a_console_is_told_to_take_sequences(
    on_windows: pytest.MonkeyPatch, kernel: Kernel, takes: bool
) -> None:
    on_windows.setattr(ctypes, "CDLL", lambda _: kernel)
    assert terminal.interprets_sequences(STREAM) == takes
    assert kernel.mode in (7 if takes else 3, None)


def test_a_console_without_term_is_not_dumb(on_windows: pytest.MonkeyPatch) -> None:
    assert not terminal.is_dumb()
    on_windows.setenv("TERM", "dumb")
    assert terminal.is_dumb()


def test_a_manual_page_is_plain_text_where_no_man_is() -> None:
    page = (
        ".TH X 1\n.SH NAME\nbackends\\-x \\- does it\n.SH OPTIONS\n.TP\n.B \\-\\-set NAME\n"
        "Set C:\\ewindows.\n.SH EXAMPLES\n.nf\nbackends x   a\n.fi\n.SH SEE ALSO\n.BR backends (1),\n"
        '.BR "backends run \\-\\-set" ,\n'
    )
    assert plain_manual(page, 40).splitlines() == [
        "NAME", "  backends-x - does it", "", "OPTIONS", "  --set NAME", "      Set C:\\windows.", "",
        "EXAMPLES", "  backends x   a", "", "SEE ALSO", "  backends(1), backends run --set,",
    ]  # fmt: skip
