"""What a loader or a call says, on Linux and on Windows, becomes a reason."""

from __future__ import annotations

import pytest

from mlbackends.isolation.opening import _refusal
from mlbackends.model.records import Library

LIBRARY = Library("fake", "C:/a/fake.dll")


class WindowsError(OSError):
    """An OSError whose number of Windows can be set on every system."""

    winerror: int | None = None


def error_of_windows(number: int | None, message: str, errno: int | None = None) -> OSError:
    error = WindowsError(message) if errno is None else WindowsError(errno, message)
    error.winerror = number
    return error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (error_of_windows(193, "[WinError 193] %1 is no application", 8), "not-a-library", "not a DLL"),
        (error_of_windows(126, "[WinError 126] not found", 22), "missing-dependency", "does not find"),
        (FileNotFoundError("Could not find module 'C:\\a\\fake.dll' (or one of its dependencies). Try"),
         "missing-dependency", "a DLL that it opens"),
        (OSError("exception: access violation reading 0x0000000000000008"), "crashed", "access violation"),
        (AttributeError("function 'fake_version' not found"), "missing-symbol", "no function fake_version"),
        (OSError("libx.so.1: cannot open shared object file: No such file"), "missing-dependency", "libx"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_reason(error: Exception, code: str, words: str) -> None:
    reason = _refusal(LIBRARY, error)
    assert reason is not None
    assert reason.code == code
    assert words in reason.message


def test_an_error_of_a_file_of_ours_is_none() -> None:
    assert _refusal(LIBRARY, OSError(24, "Too many open files")) is None
