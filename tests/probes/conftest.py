"""Libraries to ask that are not there: small C files, compiled when a test wants one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "fakelibs"


class FakeLibrary(Protocol):
    """Compile tests/fakelibs/NAME.c, or `source`, as a file called `soname` in a folder of its own.

    The same question gets the same file again. defines: what is given to the compiler as -D.
    Returns the file's path; its folder holds nothing else, so it can stand in LD_LIBRARY_PATH.
    """

    def __call__(
        self, name: str, soname: str, *, source: str = "", defines: tuple[str, ...] = ()
    ) -> Path: ...


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> FakeLibrary:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make the fake library with")
    made: dict[tuple[str, ...], Path] = {}

    def compiled(
        name: str, soname: str, *, source: str = "", defines: tuple[str, ...] = ()
    ) -> Path:
        key = (name, soname, source, *defines)
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            code = FOLDER / f"{name}.c"
            if source:
                code = tmp_path_factory.mktemp(f"{name}-source") / f"{name}.c"
                code.write_text(source)
            flags = [f"-D{define}" for define in defines]
            command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
            subprocess.run(
                [*command, f"-Wl,-soname,{soname}", "-o", folder / soname, code], check=True
            )
            made[key] = folder / soname
        return made[key]

    return compiled
