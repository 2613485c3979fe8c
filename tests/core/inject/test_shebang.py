"""The interpreters of scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.inject.target import interpreter_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "interpreter"),
    [
        ("#!/usr/bin/python3\n", ("/usr/bin/python3",)),
        ("#! /usr/bin/python3  -E \n", ("/usr/bin/python3", "-E")),
        ("#!/usr/bin/python3 -s -E", ("/usr/bin/python3", "-s -E")),
        ("#!/usr/bin/env python3\n", ("python3",)),
        ("#!/usr/bin/env -S python3 -I -u\n", ("python3", "-I", "-u")),
        ("#!/usr/bin/env -S A=1 python3\n", ("python3",)),
        ("#!/usr/bin/env -i python3\n", ()),
        ("#!/usr/bin/env -S -i python3\n", ()),
        ("#!/usr/bin/env -S 'python3\n", ()),
        ("#!/usr/bin/env\n", ()),
        ("#!/bin/sh\n'''exec' \"/a b/python\" \"$0\" \"$@\"\n' '''\n", ("/a b/python",)),
        ("#!/bin/sh\n'''exec' '/a/python' '-E' \"$0\" \"$@\"\n' '''\n", ("/a/python", "-E")),
        ("#!/bin/sh\n'''exec' \"$(dirname \"$0\")\"/python \"$0\" \"$@\"\n' '''\n", ()),
        ('#!/bin/sh\nexec python "$@"\n', ()),
        ("#!\n", ()),
        ("#!/bin/sh", ()),
        ("import torch\n", ()),
        ("", ()),
        ("\x7fELF\x00\x01", ()),
    ],
)  # fmt: skip
def test_the_first_line_tells(tmp_path: Path, text: str, interpreter: tuple[str, ...]) -> None:
    script = tmp_path / "script"
    script.write_bytes(text.encode())
    assert interpreter_of(str(script)) == interpreter


@pytest.mark.parametrize("path", ["/nonexistent", "/", "a\0b"])
def test_what_cannot_be_read_tells_nothing(path: str) -> None:
    assert interpreter_of(path) == ()
