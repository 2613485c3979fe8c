"""Recording: what was read of a machine is written as a folder that tells the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.base.errors import NotALibrary
from mlbackends.host.declared import facts_of
from mlbackends.host.device_nodes import accel_nodes
from mlbackends.host.host import Host
from mlbackends.host.recording.anonymise import Anonymiser
from mlbackends.host.recording.recorder import Recording
from mlbackends.host.redaction import Names
from mlbackends.libraries.elf import elf_headers
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.symbols import extract_symbols, symbol_versions
from mlbackends.model.records import Presence
from mlbackends.survey import probe_names, survey

if TYPE_CHECKING:
    from tests.conftest import Machine

    from mlbackends.model.records import Report

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the machine is made with links")


def written(recording: Recording, folder: Path) -> Host:
    recording.write(str(folder))
    return Host(str(folder))


def lasting(report: Report, name: str) -> dict[str, Any]:
    """Return what one probe found, without what differs between two looks."""
    told: dict[str, Any] = msgspec.to_builtins(report.probes[name])
    told.pop("duration_seconds", None)
    for fact in facts_of(name).values():
        if fact.role == "volatile":
            told.get("facts", {}).pop(fact.name, None)
    for device in told.get("devices", ()):
        device.pop("volatile", None)
    return told


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Report]:
    """Return what all probes find on this machine, and on the recording of that look."""
    folder = tmp_path_factory.mktemp("recording") / "machine"
    recording = Recording()
    live = survey((), recording, Presence.FOUND)
    return live, survey((), written(recording, folder), Presence.FOUND)


@pytest.mark.parametrize("name", probe_names())
def test_the_recording_of_this_machine_tells_what_the_machine_does(
    name: str, both: tuple[Report, Report]
) -> None:
    live, replayed = both

    assert lasting(replayed, name) == lasting(live, name)


def test_only_variables_that_were_asked_for_by_name_are_written(tmp_path: Path) -> None:
    variables = {"OMP_NUM_THREADS": "4", "API_TOKEN": "secret", "LD_PRELOAD": "x", "HOME": "/h"}
    recording = Recording(Host(environment=variables))

    assert recording.env("OMP_NUM_THREADS") == "4"
    assert "LD_PRELOAD" in recording.environment
    assert dict(recording.environment.items())["API_TOKEN"] == "secret"
    again = written(recording, tmp_path / "machine")

    assert again.environment == {"OMP_NUM_THREADS": "4", "LD_PRELOAD": "x"}


def test_no_token_of_the_environment_gets_into_a_recorded_survey(tmp_path: Path) -> None:
    variables = {
        "CUDA_HOME": "/c",
        "HF_TOKEN": "hunter2",
        "TORCH_SECRET_KEY": "hunter2",
        "X": "hunter2",
    }
    recording = Recording(Host(environment=variables))
    survey((), recording, Presence.FOUND)

    recording.write(str(tmp_path / "machine"))

    assert "hunter2" not in (tmp_path / "machine" / "host.json").read_text()
    assert Host(str(tmp_path / "machine")).env("CUDA_HOME") == "/c"


def test_logins_in_addresses_are_not_written(tmp_path: Path) -> None:
    recording = Recording(Host(environment={"PIP_INDEX_URL": "https://me:pass@example.org/x"}))
    recording.env("PIP_INDEX_URL")

    again = written(recording, tmp_path / "machine")

    assert again.env("PIP_INDEX_URL") == "https://redacted@example.org/x"


def test_links_are_written_relative_and_lead_to_the_same_file(machine: Machine, tmp_path: Path) -> None:
    host = machine(
        {
            "/opt/cuda-12/version": "12\n",
            "/usr/local/cuda": "->/opt/cuda-12",
            "/sys/bus/gpu": "->../../../../../../opt",
        }
    )
    recording = Recording(host)
    assert recording.read("/usr/local/cuda/version") == "12"
    assert recording.read("/sys/bus/gpu/cuda-12/version") == "12"

    again = written(recording, tmp_path / "second")

    assert again.read("/usr/local/cuda/version") == "12"
    assert again.realpath("/usr/local/cuda/version") == "/opt/cuda-12/version"
    assert again.read("/sys/bus/gpu/cuda-12/version") == "12"
    root = tmp_path / "second" / "root"
    for link in (root / "usr/local/cuda", root / "sys/bus/gpu"):
        target = os.readlink(link)
        assert not os.path.isabs(target)
        assert (link.parent / target).resolve().is_relative_to(root.resolve())


def test_a_relative_link_that_stays_inside_is_written_as_it_is(machine: Machine, tmp_path: Path) -> None:
    device = "/sys/devices/pci0000:00/0000:3d:00.0"
    host = machine(
        {
            f"{device}/accel/accel0/device": "->../../../0000:3d:00.0",
            "/sys/class/accel/accel0": f"->../..{device.removeprefix('/sys')}/accel/accel0",
            "/opt/new/lib/version": "2\n",
            "/opt/new/bin/tool": "",
            "/usr/bin": "->../opt/new/bin",
            "/usr/lib": "->bin/../lib",
        }
    )
    recording = Recording(host)
    assert accel_nodes(recording) == {"accel0": "0000:3d:00.0"}
    assert recording.read("/usr/lib/version") == "2"

    again = written(recording, tmp_path / "second")

    assert accel_nodes(again) == {"accel0": "0000:3d:00.0"}
    assert again.read("/usr/lib/version") == "2"


def test_dangling_links_and_loops_stay_what_they_are(machine: Machine, tmp_path: Path) -> None:
    links = {"/a": "->gone", "/loop": "->loop", "/there": "->back", "/back": "->there"}
    recording = Recording(machine(links))
    for path in links:
        assert not recording.exists(path)

    again = written(recording, tmp_path / "second")

    assert [again.is_link(path) for path in links] == [True] * 4
    assert not any(again.exists(path) for path in links)


def test_the_folder_of_the_process_is_no_link(tmp_path: Path) -> None:
    recording = Recording()
    name = recording.read("/proc/self/status").split("\n", 1)[0]

    again = written(recording, tmp_path / "machine")

    assert again.read("/proc/self/status").startswith(name)
    assert not again.is_link("/proc/self")


def test_listings_are_complete_and_say_which_names_are_folders(machine: Machine, tmp_path: Path) -> None:
    host = machine({"/dev/null": "", "/dev/dri/card0": "", "/dev/fd": "->null"})
    recording = Recording(host)
    names = recording.listdir("/dev")

    again = written(recording, tmp_path / "second")

    assert again.listdir("/dev") == names == ["dri", "fd", "null"]
    assert again.is_dir("/dev/dri")
    assert again.is_link("/dev/fd")


def test_what_a_probe_reads_whole_is_kept_whole(machine: Machine, tmp_path: Path) -> None:
    size = 5 << 20
    recording = Recording(machine({"/big": b"a" * size}))
    assert len(recording.read_bytes("/big", 32 << 20)) == size

    again = written(recording, tmp_path / "second")

    assert len(again.read_bytes("/big", 32 << 20)) == size
    assert not recording.cut


def test_the_largest_files_are_left_out_and_named_if_all_are_too_large(
    machine: Machine, tmp_path: Path
) -> None:
    files: dict[str, str | bytes] = {"/a": b"a" * 400, "/b": b"b" * 900, "/c": b"c" * 500}
    recording = Recording(machine(files))
    recording.total_limit = 1000
    for path in files:
        recording.read(path)

    again = written(recording, tmp_path / "second")

    assert list(recording.cut) == ["/b"]
    assert again.read("/a") == "a" * 400
    assert again.read("/c") == "c" * 500
    assert again.read("/b") == ""
    assert again.exists("/b")


def test_a_folder_of_too_many_names_is_named(machine: Machine, tmp_path: Path) -> None:
    recording = Recording(machine({"/f/a": "", "/f/b": "", "/f/c": ""}))
    recording.listing_limit = 2
    assert recording.listdir("/f") == ["a", "b", "c"]

    assert written(recording, tmp_path / "second").listdir("/f") == ["a", "b"]
    assert list(recording.cut) == ["/f"]


def test_a_script_that_was_read_as_a_library_is_kept_as_far_as_it_was_read(
    machine: Machine, tmp_path: Path
) -> None:
    text = "/* GNU ld script */" + "x" * 9000
    recording = Recording(machine({"/lib/libc.so": text}))
    with pytest.raises(NotALibrary):
        elf_headers(recording, "/lib/libc.so")
    recording.read("/lib/libc.so")

    again = written(recording, tmp_path / "second")

    assert again.read("/lib/libc.so") == text
    with pytest.raises(NotALibrary, match=r"a text file \(linker script\)"):
        elf_headers(again, "/lib/libc.so")


def test_of_a_library_what_was_extracted_is_written(tmp_path: Path, fake_library: Any) -> None:
    source = "int openblas_answer(void) { return 1; } int other(void) { return 2; }"
    real = fake_library("extracted", "libextracted.so.3", source=source)
    link = tmp_path / "libextracted.so"
    link.symlink_to(real)
    recording = Recording(Host())
    names = ("openblas_answer", "absent")
    headers = elf_headers(recording, str(link))
    assert extract_symbols(recording, str(link), names) == {"openblas_answer"}
    assert extract_symbols(recording, str(link), ("other",)) == {"other"}
    versions = symbol_versions(recording, str(link))
    recording.read_bytes(str(real))

    again = written(recording, tmp_path / "machine")

    assert os.path.getsize(again.real(str(real))) == 0
    assert again.realpath(str(link)) == str(real)
    assert elf_headers(again, str(link)) == headers
    assert extract_symbols(again, str(real), (*names, "other")) == {"openblas_answer", "other"}
    assert symbol_versions(again, str(real)) == versions


def test_the_loaders_cache_is_kept_without_names_of_people(machine: Machine, tmp_path: Path) -> None:
    cache = Path("/etc/ld.so.cache")
    extracts = {
        "/etc/ld.so.cache": {
            "loader_cache": [
                ["libfirst.so.1", "/data/bo/lib/libfirst.so.1", 0x0303, ""],
                ["libm.so.6", "/lib/libm.so.6", 0x0303, ""],
            ]
        }
    }
    recording = Recording(machine({str(cache): ""}, extracts=extracts))
    assert cached_libraries(recording) == ["/data/bo/lib/libfirst.so.1", "/lib/libm.so.6"]

    recording.write(str(tmp_path / "second"), Anonymiser(Names(user="bo")))

    again = Host(str(tmp_path / "second"))
    assert cached_libraries(again) == ["/data/user/lib/libfirst.so.1", "/lib/libm.so.6"]


def test_commands_and_calls_are_replayed(machine: Machine, tmp_path: Path) -> None:
    host = machine(platform="darwin", system={"page_size": 16384}, affinity=[1, 3])
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "_usr_sbin_sysctl -a").write_text("hw.ncpu: 8\n")
    recording = Recording(host)
    recording.run("/usr/sbin/sysctl", "-a")
    recording.run("not-there")
    recording.system("page_size")

    again = written(recording, tmp_path / "second")

    assert again.platform == "darwin"
    assert again.run("/usr/sbin/sysctl", "-a") == "hw.ncpu: 8\n"
    assert again.system("page_size") == 16384
    assert again.affinity() == (1, 3)


def test_nodes_that_may_not_be_opened_are_told_by_name(machine: Machine, tmp_path: Path) -> None:
    files = {"/dev/kfd": b"", "/dev/accel0": b""}
    recording = Recording(machine(files, system={"denied_nodes": ["/dev/kfd"]}))
    for path in ("/dev/kfd", "/dev/accel0", "/dev/kfd"):
        recording.can_open(path)

    again = written(recording, tmp_path / "second")

    assert again.system("denied_nodes") == ["/dev/kfd"]
    assert [again.can_open(path) for path in files] == [False, True]
