"""Wheels that are not installed: read in ranges, planned as an environment, and resolved."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import zipfile
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, Incomplete
from mlbackends.host.host import Host
from mlbackends.loading.assumed import Assumed
from mlbackends.loading.before import before
from mlbackends.loading.dynamic_symbols import symbol
from mlbackends.loading.packages import resolve
from mlbackends.loading.plans import best_wheel
from mlbackends.loading.web import RangeFile
from mlbackends.loading.wheels import Member, Wheel
from mlbackends.model.loading import TargetMachine, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.model.loading import Resolution

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF files of this machine are needed")
CORE = Path(sys.modules["msgspec._core"].__file__ or "")
WHEEL = "fast-1.0-py3-none-any.whl"


def wheel(folder: Path, needs: bytes = b"libc.so.6", more: dict[str, bytes] | None = None) -> Path:
    """Write a wheel with msgspec's extension module in it, which needs a library under another name."""
    info = "fast-1.0.dist-info"
    files = {
        "fast/__init__.py": b"from fast import _core\n",
        f"fast/{CORE.name}": CORE.read_bytes().replace(b"\0libc.so.6\0", b"\0%b\0" % needs),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: fast\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
        "fast/_vendor/other-2.0.dist-info/METADATA": b"Name: other\n",  # as setuptools has
    }
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (files | (more or {})).items():
            archive.writestr(name, data)
    return path


@contextmanager
def served(folder: Path, kind: str = "ranges") -> Iterator[str]:
    """Serve a folder over HTTP. kind: ranges, whole, lying, silent, moving or refusing."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = (folder / unquote(self.path[1:].partition("?")[0])).read_bytes()
            status, headers, wanted = 200, {}, self.headers["Range"]
            if kind == "silent":
                ended.wait(20)
            elif kind == "moving":
                status, headers, data = 302, {"Location": self.path}, b""
            elif kind == "refusing":
                status, data = 403, b"no"
            elif kind != "whole" and wanted:
                first, last = wanted.removeprefix("bytes=").split("-")
                start = int(first) if first else max(0, len(data) - int(last))
                end = min(int(last), len(data) - 1) if first else len(data) - 1
                total = len(data) + (kind == "lying")
                status, headers = 206, {"Content-Range": f"bytes {start}-{end}/{total}"}
                data = data[start : end + 1]
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://user:hidden@127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def pylock(folder: Path, address: str, marker: str = "") -> str:
    """Write a lock with one package, by address or by path."""
    key = "url" if "//" in address else "path"
    lock = folder / "pylock.toml"
    lock.write_text(f"""lock-version = "1.0"
created-by = "test"
[[packages]]
name = "fast"
version = "1.0"
marker = {marker or "python_version > '3'"!r}
wheels = [{{ {key} = "{address}" }}]
""")
    return str(lock)


def resolved(host: Host, subjects: list[str] | None = None, **named: Any) -> Resolution:
    """Return the answer for packages that are not installed."""
    with before(host, subjects or (), **named) as plan:
        answer = resolve(plan.host, plan.packages)
        return replace(answer, packages=(*plan.lacking, *answer.packages), notes=plan.notes())


def locked(lock: str) -> Resolution:
    """Return the answer for a lock, in an environment without any variable."""
    return resolved(Host(environment={}), lock=lock)


@pytest.mark.parametrize("kind", ["ranges", "whole", "path"])
def test_a_lock_is_resolved_from_ranges_of_its_wheels(tmp_path: Path, kind: str) -> None:
    wheel(tmp_path, more={"fast/data.bin": random.Random(1).randbytes(1 << 20)})
    with served(tmp_path, kind) as address:
        answer = locked(pylock(tmp_path, WHEEL if kind == "path" else f"{address}/{WHEEL}"))
    (package,) = answer.packages
    assert (package.name, package.version, package.verdict) == ("fast", "1.0", Verdict.LOADS)
    assert answer.notes[-1].endswith("in 1 wheel")


@pytest.mark.parametrize(("needs", "target"), [(b"libc.so.9", ""), (b"libcuda.so.1", "9.0")])
def test_a_lock_that_breaks_names_the_library_that_nothing_provides(
    tmp_path: Path, needs: bytes, target: str
) -> None:
    wheel(tmp_path, needs)
    targets = [TargetMachine("h100", chip=target)] if target else []
    (package,) = resolved(Host(environment={}), lock=pylock(tmp_path, WHEEL), targets=targets).packages
    lacks = [fault.name for fault in package.faults]
    assert (needs.decode() in lacks) is (not target)  # for a GPU, the driver is assumed
    if not target:
        assert package.verdict is Verdict.FAILS
        assert package.faults[0].path[0].endswith(f"/site-packages/fast/{CORE.name}")


def test_a_package_whose_marker_is_false_or_that_has_no_wheel_here(tmp_path: Path) -> None:
    wheel(tmp_path)
    for marker in ("sys_platform == 'win32'", "'x' in extras"):
        with pytest.raises(BadInput, match="nothing would be installed"):
            locked(pylock(tmp_path, WHEEL, marker))
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(BadInput, match="it has no 'packages'"):
        locked(str(tmp_path / "empty.toml"))
    (package,) = locked(pylock(tmp_path, "fast-1.0-cp27-cp27m-manylinux1_x86_64.whl")).packages
    assert package.verdict is Verdict.FAILS


def test_a_lock_of_uv_is_followed_from_its_project(tmp_path: Path) -> None:
    path = wheel(tmp_path)
    lock = tmp_path / "uv.lock"
    lock.write_text(f"""version = 1
[[package]]
name = "fast"
version = "1.0"
source = {{ registry = "{tmp_path}" }}
wheels = [{{ path = "{path.name}" }}]
[[package]]
name = "other"
version = "1.0"
source = {{ registry = "{tmp_path}" }}
wheels = [{{ path = "other-1.0-py3-none-any.whl" }}]
[[package]]
name = "project"
source = {{ virtual = "." }}
dependencies = [{{ name = "fast", extra = ["more"] }}, {{ name = "other", marker = "os_name == 'nt'" }}]
""")
    assert [package.name for package in locked(str(lock)).packages] == ["fast"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("lying", "another range"),
        ("moving", "answers 302"),
        ("refusing", "answers 403"),
        ("silent", "no answer in time"),
    ],
)
def test_a_server_that_does_not_serve_ends_in_one_line(tmp_path: Path, kind: str, words: str) -> None:
    wheel(tmp_path)
    with served(tmp_path, kind) as address, pytest.raises(Incomplete, match=words) as raised:
        RangeFile(f"{address}/{WHEEL}?token=hidden", seconds=0.3)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *[(name, "pip refuses") for name in ("/etc/passwd", "../up.py", "a/../../b", "a\\b")],
        ("fast/__init__.py/more", "laid out"),  # a file below a file
    ],
)
def test_a_wheel_that_leads_out_of_itself_is_refused(tmp_path: Path, name: str, words: str) -> None:
    wheel(tmp_path, more={name: b"x"})
    with pytest.raises(Incomplete, match=words):
        locked(pylock(tmp_path, WHEEL))


@pytest.mark.slow
def test_damage_of_every_kind_ends_in_one_line_or_a_fault(tmp_path: Path) -> None:
    whole = wheel(tmp_path).read_bytes()
    dice = random.Random(7)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 30)):
            data[dice.choice([dice.randrange(len(data)), len(data) - dice.randrange(1, 900)])] = (
                dice.randrange(256)
            )
        (tmp_path / WHEEL).write_bytes(data[: len(data) - dice.choice([0, 0, 9, 99999])])
        with suppress(Incomplete):
            assert len(locked(pylock(tmp_path, WHEEL)).packages) == 1


@pytest.mark.parametrize(("stated", "words"), [(4 << 30, "would have to be"), (64 << 20, "another length")])
def test_a_bomb_is_not_unpacked(tmp_path: Path, stated: int, words: str) -> None:
    path = wheel(tmp_path, more={"fast/bomb.so": bytes(32 << 20)})
    with open(tmp_path / "copy", "w+b") as copy:
        opened = Wheel(WHEEL, RangeFile(str(path)))
        info = opened.files["fast/bomb.so"]
        info.file_size = stated
        with pytest.raises((OSError, EOFError), match=words):
            Member(opened, info, copy).ensure(0, stated)
        with pytest.raises(OSError, match="has"):
            opened.whole(opened.files["fast/__init__.py"], 3)


def prose(size: int) -> bytes:
    """Return bytes that are packed to about half."""
    dice = random.Random(3)
    words = [dice.randbytes(5) for _ in range(5000)]
    return b"".join(dice.choices(words, k=size // 5))


@pytest.mark.slow
def test_the_end_of_a_member_is_read_without_what_is_before(tmp_path: Path) -> None:
    data = prose(6_000_000)
    path = wheel(tmp_path, more={"fast/large.so": data})
    with open(tmp_path / "copy", "w+b") as copy:
        opened = Wheel(WHEEL, RangeFile(str(path)))
        before = opened.file.amount
        copy.truncate(len(data))
        Member(opened, opened.files["fast/large.so"], copy).ensure(len(data) - 90_000, 80_000)
        copy.seek(len(data) - 90_000)
        assert copy.read(80_000) == data[-90_000:-10_000]
        assert opened.file.amount - before < opened.files["fast/large.so"].compress_size / 2


def test_what_uv_would_install_joins_the_environment(tmp_path: Path) -> None:
    wheel(tmp_path)
    lock = pylock(tmp_path, str(tmp_path / WHEEL))
    uv = tmp_path / "uv"
    uv.write_text(f"""#!/bin/sh
[ "$2" = install ] && {{ grep -q '^fast>=1' "$6" && echo ' + fast==1.0' >&2; exit; }}
for last; do case $last in */pylock.toml) grep -q '^fast==1.0' "$3" && cp {lock} "$last";; esac; done
""")
    uv.chmod(0o755)
    python = {**Host().python, "executable": sys.executable}
    os.environ["PATH"], before = f"{tmp_path}:{os.environ['PATH']}", os.environ["PATH"]
    try:
        answer = resolved(Host(python=python, environment={}), ["fast", "msgspec"], wanted=["fast>=1"])
    finally:
        os.environ["PATH"] = before
    assert [(package.name, package.verdict) for package in answer.packages] == [
        ("fast", Verdict.LOADS),
        ("msgspec", Verdict.LOADS),
    ]


@pytest.mark.parametrize("wanted", ["msgspec>=0", "./msgspec-0.19.0-py3-none-any.whl"])
def test_what_is_installed_already_is_judged_as_it_is(tmp_path: Path, wanted: str) -> None:
    uv = tmp_path / "uv"
    uv.write_text(
        "#!/bin/sh\nfor last; do case $last in */pylock.toml) echo 'packages = []' > $last;; esac; done\n"
    )
    uv.chmod(0o755)
    os.environ["PATH"], before = f"{tmp_path}:{os.environ['PATH']}", os.environ["PATH"]
    try:
        answer = resolved(Host(python={**Host().python, "executable": sys.executable}), wanted=[wanted])
    finally:
        os.environ["PATH"] = before
    assert [(package.name, package.verdict) for package in answer.packages] == [("msgspec", Verdict.LOADS)]
    assert answer.notes[-1] == "nothing would be installed: the environment has it already"


@pytest.mark.parametrize("kind", ["ranges", "whole", "path"])
def test_a_file_that_is_there_as_a_whole_has_the_sha256_of_the_lock(tmp_path: Path, kind: str) -> None:
    data = wheel(tmp_path).read_bytes()
    with served(tmp_path, kind) as address:
        lock = Path(pylock(tmp_path, WHEEL if kind == "path" else f"{address}/{WHEEL}"))
        text = lock.read_text()
        for digest in (hashlib.sha256(data).hexdigest(), "0" * 64):
            lock.write_text(text.replace(" }", f', hashes = {{ sha256 = "{digest}" }} }}'))
            is_refused = digest.startswith("0000") and kind != "ranges"
            words = f"{WHEEL} is not the file of the lock: its sha256 is [0-9a-f]*, not 0"
            with pytest.raises(Incomplete, match=words) if is_refused else nullcontext():
                assert locked(str(lock)).packages[0].verdict is Verdict.LOADS


def test_another_architecture_has_what_its_system_must_have(tmp_path: Path) -> None:
    machine, number = ("aarch64", 183) if Host().machine == "x86_64" else ("x86_64", 62)
    data = bytearray(CORE.read_bytes())
    data[18:20] = number.to_bytes(2, "little")
    missing = data.replace(b"\0libm.so.6\0", b"\0libq.so.6\0")
    for file, verdict in ((data, Verdict.LOADS), (missing, Verdict.FAILS)):
        wheel(tmp_path, more={"fast/_core.abi3.so": bytes(file), "fast/_core.so": b""})
        target = TargetMachine(machine, machine=machine)
        answer = resolved(Host(environment={}), lock=pylock(tmp_path, WHEEL), targets=[target])
        assert answer.packages[0].verdict is verdict
        assert answer.notes[0].startswith(f"assumed to be on {machine}: ")
    assert answer.packages[0].faults[0].name == "libq.so.6"
    lock = pylock(tmp_path, f"fast-1.0-cp37-abi3-manylinux_2_17_{Host().machine}.whl")
    (package,) = resolved(Host(environment={}), lock=lock, targets=[target]).packages
    assert package.faults[0].code == "wrong-architecture"


def test_what_has_no_version_is_of_the_library_that_defines_it_here() -> None:
    library = Assumed("libc.so.6", "", "s390x", Host())
    assert library.symbols.defines(symbol("dladdr")) or library.symbols.defines(symbol("pthread_once"))
    assert not library.symbols.defines(symbol("cudaMalloc"))


def test_the_wheel_is_chosen_as_pip_does() -> None:
    host = Host()
    machine, version = host.machine, f"cp{sys.version_info[0]}{sys.version_info[1]}"
    names = [
        f"a-1-{tag}.whl"
        for tag in ("py3-none-any", f"{version}-{version}-win_amd64", f"cp37-abi3-linux_{machine}", "broken")
    ]
    assert best_wheel(host, [(name, name) for name in names]) == (names[2],) * 2
    assert best_wheel(host, [(names[1], "")]) is None
