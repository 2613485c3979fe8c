"""Python's own arguments."""

from __future__ import annotations

import pytest

from mlbackends.inject.target import PythonArguments, python_arguments


@pytest.mark.parametrize(
    ("line", "ignored_by", "program", "has_own_folder"),
    [
        ("", "", "", True),
        ("a.py -I", "", "a.py", True),
        ("-I a.py", "-I", "a.py", False),
        ("-P a.py", "", "a.py", False),
        ("-uE a.py", "-E", "a.py", True),
        ("-W ignore -S a.py", "-S", "a.py", True),
        ("-Wignore::I a.py", "", "a.py", True),
        ("-X importtime a.py -E", "", "a.py", True),
        ("-Xdev -s a.py", "", "a.py", True),
        ("-c -I", "", "", True),
        ("-cE", "", "", True),
        ("-Ic pass", "-I", "", False),
        ("-m E -I", "", "", True),
        ("-im S", "", "", True),
        ("--check-hash-based-pycs always a.py", "", "a.py", True),
        ("-- a.py", "", "a.py", True),
        ("-- -I", "", "-I", True),
        ("--", "", "", True),
        ("- -I", "", "", True),
        ("-W", "", "", True),
    ],
)
def test_what_stands_before_the_program_is_pythons(
    line: str, ignored_by: str, program: str, has_own_folder: bool
) -> None:
    assert python_arguments(line.split()) == PythonArguments(ignored_by, program, has_own_folder)
