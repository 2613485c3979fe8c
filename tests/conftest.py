"""What holds for every test, and the fakes that many of them want."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]

# "python -m pytest" puts the root on the path, where our kernels/ would pass for the package of
# that name on PyPI.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

# Signals that nohup or a shell's background ignores would be ignored by every program of a test too.
for number, wanted in (
    ("SIGINT", signal.default_int_handler),
    ("SIGHUP", signal.SIG_DFL),
    ("SIGQUIT", signal.SIG_DFL),
):
    if (
        getattr(signal, number, None)
        and signal.getsignal(getattr(signal, number)) is signal.SIG_IGN
    ):
        signal.signal(getattr(signal, number), wanted)

# No test is timed: these machines are busy. In CI the same examples are tried each time.
settings.register_profile("ours", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("ours")

FAKES = ROOT / "tests" / "fakelibs"


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
            code = FAKES / f"{name}.c"
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


class FirstArguments(Protocol):
    """Have a function of a module note its first argument in each call, in the list that is returned."""

    def __call__(self, module: ModuleType, name: str) -> list[Any]: ...


@pytest.fixture
def first_arguments(monkeypatch: pytest.MonkeyPatch) -> FirstArguments:
    def noted(module: ModuleType, name: str) -> list[Any]:
        seen: list[Any] = []
        real = getattr(module, name)

        def function(first: Any, *more: Any) -> Any:
            seen.append(first)
            return real(first, *more)

        monkeypatch.setattr(module, name, function)
        return seen

    return noted
