"""What holds for every test, and the fakes that many of them want."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from host_kernels import HostKernels

    from mlbackends.host.host import Host

ROOT = Path(__file__).resolve().parents[1]

# "python -m pytest" puts the root on the path, where our kernels/ would pass for the package of
# that name on PyPI.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
sys.path += [
    str(ROOT / folder)
    for folder in (
        "kernels/builder",
        "tests/core/fleet",
        "tests/kernels/attention_cuda",
        "tests/systems",
    )
]

from not_here import lines_for, matches  # noqa: E402

# Signals that nohup or a shell's background ignores would be ignored by every program of a test too.
for number, wanted in (
    ("SIGINT", signal.default_int_handler),
    ("SIGHUP", signal.SIG_DFL),
    ("SIGQUIT", signal.SIG_DFL),
):
    if getattr(signal, number, None) and signal.getsignal(getattr(signal, number)) is signal.SIG_IGN:
        signal.signal(getattr(signal, number), wanted)

# No test is timed: these machines are busy. In CI the same examples are tried each time.
settings.register_profile("ours", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("ours")

FAKES = ROOT / "tests" / "fakelibs"


def not_there(*_: object, **__: object) -> None:
    """Skip a test that makes a pipe or a link, which Windows has not as POSIX does."""
    if sys._getframe(1).f_globals["__name__"].startswith("_pytest."):
        raise OSError("no links")  # pytest can do without its own
    pytest.skip("needs symbolic links or pipes of POSIX")


if os.name == "nt":
    os.symlink = os.mkfifo = Path.symlink_to = not_there  # type: ignore[method-assign]

#: Tests that take long, by measurement: see tests/slow.py.
SLOW = frozenset((ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").split())


# Collecting thousands of tests leaves no garbage: looking for it takes a third of the time.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage again, of what the tests make alone."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, before `-m` chooses, and what cannot pass on this system."""
    elsewhere = lines_for({platform.system().lower(), *os.environ.get("TESTED_ON", "").split()})
    for item in items:
        if os.name != "nt" and item.get_closest_marker("windows"):
            item.add_marker(pytest.mark.skip(reason="needs Windows"))
        path = item.path.relative_to(ROOT).as_posix()
        is_slow = f"{path}::{item.name.partition('[')[0]}" in SLOW
        if is_slow or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
        for line, why in elsewhere.items():
            if matches(line, path, item.name):
                item.add_marker(pytest.mark.xfail(reason=why, strict=False))


class FakeLibrary(Protocol):
    """Compile tests/fakelibs/NAME.c, or `source`, as a file called `soname` in a folder of its own.

    The same question gets the same file again. defines: what is given to the compiler as -D.
    Returns the file's path; its folder holds nothing else, so it can stand in LD_LIBRARY_PATH.
    """

    def __call__(
        self, name: str, soname: str, *, source: str = "", defines: tuple[str, ...] = ()
    ) -> Path: ...


@pytest.fixture
def fresh_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switches, and what was warned of, as in a new process; afterwards too."""
    from mlbackends.cuda import preferences
    from mlbackends.switches import modules, store

    for module in (modules, preferences):
        monkeypatch.setattr(module, "_warned", set())
    store.forget()
    yield
    store.forget()


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> FakeLibrary:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make the fake library with")
    base = tmp_path_factory.getbasetemp()
    # The processes of one run share what each has compiled: their folders stand beside each other.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fake-libraries"

    def compiled(name: str, soname: str, *, source: str = "", defines: tuple[str, ...] = ()) -> Path:
        code = source or (FAKES / f"{name}.c").read_text(encoding="utf-8")
        key = hashlib.sha256("\0".join((code, soname, *defines)).encode()).hexdigest()[:16]
        folder = shared / f"{name}-{key}"
        if not folder.exists():
            part = tmp_path_factory.mktemp(name)
            flags = [f"-D{define}" for define in defines]
            command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
            subprocess.run(
                [
                    *command,
                    f"-I{FAKES}",
                    f"-Wl,-z,lazy,-soname,{soname}",
                    "-o",
                    part / soname,
                    "-xc",
                    "-",
                ],
                input=code.encode(),
                check=True,
            )
            shared.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # another process was first
                part.rename(folder)
        return folder / soname

    return compiled


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    """Compile kernels of attention.cu for the CPU."""
    from host_kernels import HostKernels

    base = tmp_path_factory.getbasetemp()
    # All processes of a run share the compiled libraries, through the parent of their folders.
    return HostKernels((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "host-kernels")


@pytest.fixture(scope="session")
def kernels_on_host(host_kernels: HostKernels) -> Path:
    """Compile attention's forward pass in float16 for the host, as computing_driver.c runs it."""
    from mlbackends_kernels.attention_cuda.launches import tile_of

    return host_kernels.of_the_driver({"forward": tile_of("forward", "Float16", (8, 8), (9, 0))})


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the library that a capture preloads, whether this installation has one or not."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to make the shim with")
    import compilation

    made = tmp_path_factory.mktemp("shim") / "trace_shim.so"
    compiler = compilation.find_compiler()
    compilation.compile_shim(made, compiler, compilation.target_of(compiler))
    return str(made)


class FirstArguments(Protocol):
    """Have a function of a module note its first argument in each call, in the list that is returned.

    where: which of them to note; all by default.
    """

    def __call__(self, module: ModuleType, name: str, where: Callable[[Any], bool] = ...) -> list[Any]: ...


@pytest.fixture
def first_arguments(monkeypatch: pytest.MonkeyPatch) -> FirstArguments:
    def noted(module: ModuleType, name: str, where: Callable[[Any], bool] = lambda _: True) -> list[Any]:
        seen: list[Any] = []
        real = getattr(module, name)

        def function(first: Any, *more: Any) -> Any:
            if where(first):
                seen.append(first)
            return real(first, *more)

        monkeypatch.setattr(module, name, function)
        return seen

    return noted


class Machine(Protocol):
    """Compose a machine of Linux, in `tmp_path` the first time.

    files: their contents by path; a text that begins with "->" is a link. extracts: what was read of
    libraries, by path. more: variables of its environment, in capitals, and fields of host.json.
    """

    def __call__(
        self, files: Mapping[str, str | bytes] = ..., *, extracts: Any = ..., **more: Any
    ) -> Host: ...


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    from mlbackends.host.host import Host

    python = {"executable": "/venv/bin/python", "path": ["/site"], "version": "3.12.4"}

    def composed(
        files: Mapping[str, str | bytes] = MappingProxyType({}),
        *,
        extracts: Any = MappingProxyType({}),
        **more: Any,
    ) -> Host:
        folder = tmp_path
        if (folder / "host.json").exists():
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "root").mkdir(exist_ok=True)
        for path, content in files.items():
            at = folder / "root" / path.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                at.write_bytes(content)
            elif content.startswith("->"):
                at.symlink_to(content[2:])
            else:
                at.write_bytes(content.encode("utf-8", "surrogateescape"))
        variables = {name: value for name, value in more.items() if name.isupper()}
        fields = {name: value for name, value in more.items() if not name.isupper()}
        described = {"platform": "linux", "python": python, "environment": variables} | fields
        (folder / "host.json").write_text(json.dumps(described), encoding="utf-8")
        (folder / "extracts.json").write_text(json.dumps(dict(extracts)), encoding="utf-8")
        return Host(str(folder))

    return composed


class WindowsMachine(Protocol):
    """Record a Windows with Python in C:/Python311.

    dlls: what their headers say, as in `Pe`, by path. files: the content of others. variables: of the
    environment.
    """

    def __call__(
        self,
        dlls: Mapping[str, Mapping[str, Any]],
        files: Mapping[str, bytes] = ...,
        **variables: str,
    ) -> Host: ...


@pytest.fixture
def windows_machine(tmp_path: Path) -> WindowsMachine:
    from mlbackends.host.host import Host

    prefix = "C:/Python311"
    always = (f"{prefix}/python.exe", "C:/Windows/System32/kernel32.dll")
    python = {
        "executable": always[0],
        "version": "3.11.9",
        "prefix": prefix,
        "base_prefix": prefix,
        "path": [f"{prefix}/Lib", f"{prefix}/Lib/site-packages"],
    }

    def recorded(
        dlls: Mapping[str, Mapping[str, Any]],
        files: Mapping[str, bytes] = MappingProxyType({}),
        **variables: str,
    ) -> Host:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        dlls = {**{path: {"machine": "x86_64"} for path in always}, **dlls}
        for path, content in {**dict.fromkeys(dlls, b""), **files}.items():
            # A folder of Windows can have no colon.
            target = folder / "root" / path.replace(":", "")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        description = {
            "platform": "win32",
            "uname": {"machine": "AMD64"},
            "environment": {"SYSTEMROOT": r"C:\Windows", **variables},
            "python": python,
        }
        extracts = {path: {"read_pe": headers} for path, headers in dlls.items()}
        (folder / "host.json").write_text(json.dumps(description), encoding="utf-8")
        (folder / "extracts.json").write_text(json.dumps(extracts), encoding="utf-8")
        return Host(str(folder))

    return recorded


@pytest.fixture
def unprivileged() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return a context in which this thread reads what its user may, even if that is root.

    The user stays the same, so that what is ours, and only readable for us, can still be imported.
    """
    return _unprivileged


@contextlib.contextmanager
def _unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may read everything, and has no capabilities that could be given up")
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0
