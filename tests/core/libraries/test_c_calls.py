"""Calls of C functions: what a status that is an error becomes."""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.reasons import NotUsable
from mlbackends.base.tables import table
from mlbackends.libraries.c_calls import Calls, decimal_version, status_names
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = """
int fails(int status) { return status; }
int version(int *major, int *minor) { *major = 12; *minor = 9; return 0; }
int make(void **handle, int number) { *handle = (void *)(long)number; return number == 9; }
int list(int count, unsigned *room, void **handles)
{
    for (unsigned i = 0; handles && i < *room; i++) handles[i] = (void *)(long)(i != 1 ? i + 1 : 0);
    if (!handles) *room = count;
    return handles && count == 100 ? 5 : 0;
}
const char *name_of(int status) { return status == 5 ? "FIVE" : 0; }
"""


@pytest.fixture
def opened(fake_library: Callable[..., Path]) -> ctypes.CDLL:
    return ctypes.CDLL(str(fake_library("c_calls", "libc_calls.so", source=SOURCE)))


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ({}, 7, "fails returned 7 (an unnamed status)"),
        ({"library": "cublas"}, 7, "fails returned 7 (CUBLAS_STATUS_INVALID_VALUE)"),
        ({"namer": "name_of"}, 5, "fails returned 5 (FIVE)"),
        ({"library": "cublas", "namer": "name_of"}, 7, "fails returned 7 (CUBLAS_STATUS_INVALID_VALUE)"),
        ({"namer": "is_not_there", "unnamed": "see cl.h"}, -3, "fails returned -3 (see cl.h)"),
        ({"unnamed": ""}, 7, "fails returned 7"),
        ({"hexadecimal": True, "unnamed": ""}, -1, "fails returned 0xffffffff"),
    ],
)  # fmt: skip
def test_a_status_that_is_an_error_is_named(
    opened: ctypes.CDLL, options: dict[str, Any], status: int, message: str
) -> None:
    with pytest.raises(NotUsable) as stop:
        Calls(opened, **options)("fails", status)

    assert (stop.value.reason.code, stop.value.reason.message) == ("call-failed", message)


def test_what_went_before_and_the_hint_are_kept(opened: ctypes.CDLL) -> None:
    call = Calls(opened, hint="see the log")
    call.learned = Answer(Library("ours", "/libours.so"), facts={"build": "1"})
    stop = call.failed("fails", 7, "no-device", "no device")

    assert stop.reason.message == "fails returned 7 (an unnamed status): no device"
    assert (stop.reason.code, stop.reason.hint) == ("no-device", "see the log")
    assert stop.learned is call.learned


def test_a_function_that_is_missing_is_an_error_unless_something_stands_for_it(
    opened: ctypes.CDLL,
) -> None:
    call = Calls(opened)

    assert call.numbers("version", 2) == [12, 9]
    assert call.number("is_not_there", 0) == 0
    with pytest.raises(AttributeError, match="is_not_there"):
        call.number("is_not_there")


def test_a_handle_is_what_the_first_argument_becomes(opened: ctypes.CDLL) -> None:
    assert Calls(opened).create("make", 7).value == 7
    with pytest.raises(NotUsable, match="make returned 1"):
        Calls(opened).create("make", 9)


def test_handles_are_listed_without_those_that_are_none(opened: ctypes.CDLL) -> None:
    call = Calls(opened)

    assert call.handles("list", 0) == []
    assert call.handles("list", 3) == [1, 3]
    assert len(call.handles("list", 100, incomplete=5)) == 63
    with pytest.raises(NotUsable, match="list returned 5"):
        call.handles("list", 100)


def test_memory_must_hold_the_pattern_throughout(opened: ctypes.CDLL) -> None:
    call = Calls(opened)

    call.require_filled("the GPU", b"ababab", b"ab")
    with pytest.raises(NotUsable) as stop:
        call.require_filled("the GPU", b"abxbab", b"ab")

    message = "the GPU filled 6 bytes with 0x6162, and other bytes came back"
    assert (stop.value.reason.code, stop.value.reason.message) == ("wrong-result", message)


@pytest.mark.parametrize(
    ("number", "major", "minor", "version"),
    [
        (20805, 10_000, 100, "2.8.5"),
        (2708, 1000, 100, "2.7.8"),
        (60_342_133, 10_000_000, 100_000, "6.3.42133"),
    ],
)
def test_a_number_is_a_version(number: int, major: int, minor: int, version: str) -> None:
    assert decimal_version(number, major, minor) == version


@pytest.mark.parametrize("library", sorted(table("libraries/statuses")))
def test_the_table_of_statuses_can_be_read(library: str) -> None:
    names = status_names(library)

    assert names
    assert 0 not in names
    assert all(names.values())


def test_a_library_without_a_table_has_no_names() -> None:
    assert status_names("is_not_there") == {}


def test_a_folder_may_begin_with_a_variable_and_name_the_processor(tmp_path: Path) -> None:
    from mlbackends.host.host import Host

    library = SharedLibrary("x", ("libx",), folders=("$X/{machine}/lib", "$Y/lib", "/opt/x"))
    for folder in ("home/riscv64/lib", "opt/x"):
        (tmp_path / "root" / folder).mkdir(parents=True)
        (tmp_path / "root" / folder / "libx.dylib").touch()
    about = {"environment": {"X": "/home/"}, "platform": "darwin", "uname": {"machine": "riscv64"}}
    (tmp_path / "host.json").write_text(json.dumps(about))

    found = library.find(Host(str(tmp_path)))

    assert [library.path for library in found.libraries] == [
        "/home/riscv64/lib/libx.dylib",
        "/opt/x/libx.dylib",
    ]


def test_the_absence_of_a_library_names_its_first_stem(tmp_path: Path) -> None:
    from mlbackends.host.host import Host

    library = SharedLibrary("tbb", ("libours", "ours"), folders=("/opt/ours/lib", "$OURS/lib"))
    (tmp_path / "host.json").write_text('{"environment": {"TBB_VERSION": "1"}}')

    found = library.find(Host(str(tmp_path)))

    assert [reason.code for reason in found.reasons] == ["not-found"]
    assert found.reasons[0].message.startswith("no libours in ")
    assert "/opt/ours/lib" in found.reasons[0].message
    assert found.facts == {"environment": {"TBB_VERSION": "1"}}
