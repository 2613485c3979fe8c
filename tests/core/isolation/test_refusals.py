"""What a loader or a call says, on Linux and on Windows, becomes a reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlbackends.isolation.opening import _refusal, open_library
from mlbackends.model.records import Library, Presence

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


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
@pytest.mark.parametrize("folder", ["cvxopt.libs", "elsewhere"])
def test_what_a_wheel_has_beside_a_library_is_opened_before_it(tmp_path: Path, folder: str) -> None:
    """Programs find libgfortran of the wheel by the RPATH of what they open, and libsatlas has none."""
    (tmp_path / folder).mkdir()
    needed, library = (f"{tmp_path}/{folder}/lib{name}.so.3" for name in (f"needed_{folder}", "satlas"))
    name = f"-Wl,--no-as-needed,-soname,{Path(needed).name}"
    for options in ([name, "-o", needed], ["-Wl,--no-as-needed", "-o", library, needed]):
        subprocess.run(["cc", "-shared", "-xc", "/dev/null", "-xnone", *options], check=True)

    (reply,) = open_library(
        0, "blas", Library("libsatlas.so.3", library, found_by="extension"), Presence.LOADABLE
    )

    assert reply.presence is (Presence.LOADABLE if folder == "cvxopt.libs" else Presence.FOUND)
    assert (reply.reason is None) is (folder == "cvxopt.libs")
