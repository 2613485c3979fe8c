"""Whatever stands in a machine's files, no probe fails, and the report can be written.

The files are those that the probes read on the recorded machines. Every kind of file (paths that
differ in numbers alone are of one kind) meets one damage of each sort, on machines that take turns. Each
machine meets each damage in all its files at once.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.base.errors import BadInput
from mlbackends.host import archive
from mlbackends.host.host import Host
from mlbackends.host.recording.recorder import Recording
from mlbackends.model.records import Presence
from mlbackends.survey import probe_names, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the machines are made with links")

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
NAMES = sorted(path.stem for path in HOSTS.glob("*.machine"))

_NUMBERS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[0-9]+")

DAMAGES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "binary": b"\x00\xff" * 100,
    "huge-number": b"9" * 1000,
    "long-line": b"a" * (1 << 20),
    "negative": b"-1\n-99999999999999999999\n",
    "folder": None,
    "link-loop": None,
    "separators": b':\n=\n,\n-\n/\n \n: :\n= =\n,,\n--\n\n0::\n0:\n[]\n{}\n"\n',
    "other-digits": "٣\n²\n1_000\n1e9\nnan\ninf\n0x\n+5\n".encode(),
}
#: Kinds of files take turns with the damages of a sort: nothing to read, no text, text of another kind.
SORTS = (
    ("missing", "folder", "link-loop", "empty"),
    ("binary", "long-line"),
    ("huge-number", "negative", "separators", "other-digits"),
)


class Damaged(Host):
    """A recorded machine of which some files, or all, are something else."""

    def __init__(self, folder: str, instead: str, paths: frozenset[str] | None) -> None:
        self.sound = Host(folder)
        super().__init__(folder)
        self.instead = instead
        self.paths = paths

    def real(self, path: str) -> str:
        real = super().real(path)
        if self.paths is None:
            return self.instead if self.sound.is_file(path) else real
        return self.instead if path in self.paths else real

    def run(self, *command: str, timeout: float = 5.0) -> str:
        output = super().run(*command, timeout=timeout)
        if self.paths is None and output:
            path = Path(self.instead)
            return path.read_bytes().decode(errors="replace") if path.is_file() else ""
        return output


class Reading(Recording):
    """Notes which files are read, and as what."""

    def __init__(self, source: Host) -> None:
        super().__init__(source)
        self.seen: set[str] = set()

    def real(self, path: str) -> str:
        self.seen.add(path)
        return super().real(path)

    def read_bytes(self, path: str, limit: int = 4 << 20) -> bytes:
        self.seen.add(path)
        return super().read_bytes(path, limit)

    def extracted(self, path: str, read: Callable[[str], Any], kind: Any, name: str = "") -> Any:
        self.seen.add(self.realpath(path))
        return super().extracted(path, read, kind, name)


@pytest.fixture(scope="session")
def instead(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the path of a file that is damaged in the named way."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "folder" / "inside").mkdir(parents=True)
    (folder / "link-loop").symlink_to("link-loop")
    for name, content in DAMAGES.items():
        if content is not None:
            (folder / name).write_bytes(content)
    return lambda name: str(folder / name)


@pytest.fixture(scope="module", autouse=True)
def _machines_are_read_once() -> Iterator[None]:
    """Read each recorded machine once: thousands of hosts are made of them, and none changes one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "read", cache(archive.read))
        yield


@cache
def readers() -> dict[str, list[tuple[str, str, str]]]:
    """Return of each kind of file where it is: machine, path, and a probe that reads it."""
    found: dict[str, dict[tuple[str, str, str], None]] = {}
    for machine in NAMES:
        source = Host(str(HOSTS / f"{machine}.machine"))
        for probe in probe_names():
            reading = Reading(source)
            survey((probe,), reading, Presence.FOUND)
            for path in sorted(path for path in reading.seen if reading.is_file(path)):
                kind = f"{probe} {_NUMBERS.sub('#', path)}"
                found.setdefault(kind, {})[machine, path, probe] = None
    return {kind: list(places) for kind, places in sorted(found.items())}


def faults(host: Host, probes: Sequence[str]) -> list[str]:
    """Say which of the probes fail on a machine; ask that the report can be written."""
    report = survey(probes, host, Presence.FOUND)
    msgspec.json.decode(msgspec.json.encode(report), type=type(report))
    return [
        f"{name}: {probe.failure.traceback}"
        for name, probe in report.probes.items()
        # One that could read nothing says so: that is its answer, and no failure of its code.
        if probe.failure and probe.failure.message != "none of what it reads exists or is valid"
    ]


def faults_on_damaged_files(damages: Sequence[str], instead: Callable[[str], str]) -> list[str]:
    """Damage one file of each kind in one way, machines and ways taking turns, and return what fails."""
    found = []
    for number, places in enumerate(readers().values()):
        damage = damages[number % len(damages)]
        machine, path, probe = places[(number + list(DAMAGES).index(damage)) % len(places)]
        host = Damaged(str(HOSTS / f"{machine}.machine"), instead(damage), frozenset((path,)))
        found += [f"{machine}: {path}: {damage}: {fault}" for fault in faults(host, (probe,))]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("damages", SORTS, ids="-or-".join)
def test_no_probe_fails_on_a_damaged_file(damages: Sequence[str], instead: Callable[[str], str]) -> None:
    assert readers()
    assert faults_on_damaged_files(damages, instead) == []


def faults_on_damaged_machines(damage: str, instead: Callable[[str], str]) -> list[str]:
    """Damage all files of each machine in one way, and return what fails."""
    machines = {name: Damaged(str(HOSTS / f"{name}.machine"), instead(damage), None) for name in NAMES}
    return [f"{name}: {fault}" for name, host in machines.items() for fault in faults(host, ())]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_probe_fails_where_every_file_is_damaged_in_any_way(
    damage: str, instead: Callable[[str], str]
) -> None:
    assert faults_on_damaged_machines(damage, instead) == []


SENSELESS: tuple[Any, ...] = (None, [], {}, "x", -1, 1e300, True, [None, -1, "x", [1]], {"x": None})
TOLD = ("platform", "uname", "environment", "affinity", "disks", "python", "system")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy a machine on which most probes find something."""
    target = tmp_path_factory.mktemp("machine") / "broken-environment"
    archive.read(f"{HOSTS / target.name}.machine").unpack(str(target))
    shutil.copy(target / "host.json", target.parent)
    return target


@pytest.mark.parametrize("field", TOLD)
def test_no_probe_fails_where_the_description_is_senseless(field: str, copied: Path) -> None:
    description = json.loads((copied.parent / "host.json").read_text(encoding="utf-8"))
    found = []
    for value in SENSELESS:
        (copied / "host.json").write_text(json.dumps({**description, field: value}))
        found += [f"{value!r}: {fault}" for fault in faults_unless_refused(copied, field)]

    assert found == []


@pytest.mark.parametrize("field", ["python", "disks", "system", "environment", "uname"])
def test_no_probe_fails_where_parts_of_the_description_are_senseless(field: str, copied: Path) -> None:
    description = json.loads((copied.parent / "host.json").read_text(encoding="utf-8"))
    found = []
    for name in description[field]:
        for value in SENSELESS:
            changed = {**description, field: {**description[field], name: value}}
            (copied / "host.json").write_text(json.dumps(changed), encoding="utf-8")
            found += [f"{name} {value}: {fault}" for fault in faults_unless_refused(copied, field)]

    assert found == []


def faults_unless_refused(folder: Path, field: str) -> list[str]:
    """Return which probes fail; none where the machine is refused, by the name of the field."""
    try:
        host = Host(str(folder))
    except BadInput as refused:
        said = str(refused)
        is_named = f"host.json is not a valid file of a recorded machine: {field}" in said
        return [] if is_named and "\n" not in said else [f"a refusal that does not help: {said}"]
    return faults(host, ())


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00", '{"uname": ' * 3, "[" * 100_000])
def test_a_description_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(content)

    with pytest.raises(BadInput, match="recorded machine"):
        Host(str(tmp_path))
