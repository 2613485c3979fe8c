"""A recorded machine tells elsewhere what it told at home, names nobody, and is there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.audit.compare import compare
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.audit.snapshot import record
from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from collections.abc import Mapping

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
NAMES = sorted(path.stem for path in HOSTS.glob("*.machine"))


def machine(folder: Path, files: Mapping[str, str], told: object = None) -> Path:
    """Compose a machine; a text that begins with "->" is a link."""
    for path, content in files.items():
        at = folder / "root" / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("->"):
            at.symlink_to(content[2:])
        else:
            at.write_text(content)
    (folder / "host.json").write_text(json.dumps(told or {}))
    return folder


def everything(folder: Path) -> str:
    """Return every name, link and content below a folder as one text."""
    parts = []
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            parts.append(str(path.relative_to(folder)))
            if path.is_symlink():
                parts.append(os.readlink(path))
            elif path.is_file():
                parts.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(parts)


QUICK = {"alpine-container", "ivy-bridge-desktop", "macbook-m3", "slurm-job", "wsl1-laptop"}
RECORDED = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", RECORDED)
def test_a_snapshot_of_a_recorded_machine_tells_the_same(name: str, tmp_path: Path) -> None:
    source = str(HOSTS / f"{name}.machine")
    record(str(tmp_path / "copy"), Host(source))
    assert compare(report_of(source), report_of(str(tmp_path / "copy"))).changes == ()


def test_a_snapshot_of_this_machine_tells_the_same(tmp_path: Path) -> None:
    contents = record(str(tmp_path / "copy"), Host())
    live = report_of(depth=Presence.FOUND)
    assert compare(live, report_of(str(tmp_path / "copy"))).changes == ()
    assert contents.folders["/proc"] > 3
    assert contents.size_bytes > 1000


SITE = "/opt/venv/lib/python3.11/site-packages"


def test_a_wheel_with_a_long_record_owns_its_libraries_in_the_snapshot(tmp_path: Path) -> None:
    rows = [f"torch/include/header_{number}.h,sha256={'x' * 43},{number}" for number in range(20_000)]
    record_file = "\n".join([*rows, "torch/lib/libgomp.so.1,,1", "torch/lib/libtorch.so,,1"])
    assert len(record_file) > 1 << 20
    files = {
        f"{SITE}/torch/__init__.py": "",
        f"{SITE}/torch/version.py": "__version__ = '2.13.0'\n",
        f"{SITE}/torch/lib/libgomp.so.1": "no library",
        f"{SITE}/torch-2.13.0.dist-info/RECORD": record_file,
        f"{SITE}/torch-2.13.0.dist-info/METADATA": "Name: torch\nVersion: 2.13.0\n",
    }
    python = {"executable": "/opt/venv/bin/python", "version": "3.11.2", "prefix": "/opt/venv"}
    told = {
        "platform": "linux",
        "uname": {"machine": "x86_64"},
        "python": {**python, "implementation": "cpython", "path": [SITE]},
    }
    source = str(machine(tmp_path / "home", files, told))
    contents = record(str(tmp_path / "copy"), Host(source))

    home, copy = report_of(source), report_of(str(tmp_path / "copy"))
    assert compare(home, copy).changes == ()
    assert copy.probes["openmp"].libraries[0].owner == "torch 2.13.0"
    codes = [check.code for check in examine(copy).failed()]
    assert "wheel-files-missing" in codes
    assert contents.cut == ()


PERSONAL = {
    "/proc/cpuinfo": "processor : 0\nflags : lm avx2 fma\n",
    "/proc/sys/kernel/hostname": "lab-box-17\n",
    "/proc/sys/kernel/random/boot_id": "5a1e3f2c-0b4d-4c8e-9f00-112233445566\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03\n",
    "/proc/driver/nvidia/gpus/0000:17:00.0/information": (
        "Model: NVIDIA H100\nGPU UUID: GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee\nBus Location: 0000:17:00.0\n"
    ),
    "/home/marianne/venv/lib/libcudnn.so.9": "->/home/marianne/store/libcudnn.so.9",
    "/home/marianne/store/libcudnn.so.9": "no library",
    "/home/gustav/lib/libcudnn.so.9": "no library",
}
TOLD = {
    "platform": "linux",
    "uname": {"machine": "x86_64", "nodename": "lab-box-17.example.org", "sysname": "Linux"},
    "environment": {
        "HOME": "/home/marianne",
        "USER": "marianne",
        "LD_LIBRARY_PATH": "/home/marianne/venv/lib:/home/gustav/lib",
        "NCCL_NET": "https://marianne:hunter2@example.org/",
        "WANDB_API_KEY": "hunter2",
        "CUDA_VISIBLE_DEVICES": "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    },
}


def test_nobody_is_named_in_a_snapshot(tmp_path: Path) -> None:
    source = machine(tmp_path / "home", PERSONAL, TOLD)
    contents = record(str(tmp_path / "copy"), Host(str(source)))

    text = everything(tmp_path / "copy")
    for secret in ("marianne", "gustav", "lab-box", "hunter2", "aaaaaaaa", "5a1e3f2c"):
        assert secret not in text, secret
    assert "/home/user" in text
    assert contents.replaced["home folder"] > 0
    assert contents.replaced["host name"] > 0
    assert contents.replaced["UUID"] > 0
    assert "WANDB_API_KEY" not in contents.variables


CONTAINER = "4b" * 32


def test_short_names_and_what_is_read_by_the_way_are_not_in_a_snapshot(tmp_path: Path) -> None:
    files = {
        "/proc/cmdline": "ip=10.9.9.9 systemd.machine_id=" + "9c" * 16 + " mitigations=off\n",
        "/proc/self/cgroup": f"0::/docker/{CONTAINER}\n",
        "/proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "31 1 0:40 / /bo rw - nfs4 fileserver7:/bo rw,addr=10.9.9.9\n",
        f"/sys/fs/cgroup/docker/{CONTAINER}/memory.max": "1073741824\n",
        "/proc/sys/kernel/hostname": "vm\n",
        "/etc/passwd": "bo:x:1000:1000::/people/bo:/bin/sh\n",
        "/data/bo/store/libcudnn.so.9": "no library",
        "/data/bo/lib/libcudnn.so.9": "->../store/libcudnn.so.9",
        "/data/lib/libcudnn.so.8": "->../bo/store/libcudnn.so.9",
        "/data/libcudnn.so.7": "->bo/store/libcudnn.so.9",
    }
    told = {
        "platform": "linux",
        "uname": {"machine": "x86_64", "nodename": "vm", "sysname": "Linux"},
        "environment": {
            "USER": "bo",
            "LOGNAME": "bo",
            "HOME": "/people/bo",
            "NCCL_COMM_ID": "10.9.9.9:4242",
            "LD_LIBRARY_PATH": "/data/bo/lib:/data/lib:/data",
        },
        "system": {"user_id": 1000},
    }
    source = str(machine(tmp_path / "home", files, told))
    contents = record(str(tmp_path / "copy"), Host(source))

    text = everything(tmp_path / "copy")
    for secret in ("10.9.9.9", "9c9c", CONTAINER, "fileserver7", '"vm"', "/bo", '"bo"', "bo:x"):
        assert secret not in text, secret
    assert "mitigations=off" in text
    assert contents.replaced["container or machine id"] > 0
    assert contents.replaced["host name"] > 0
    home, copy = report_of(source), report_of(str(tmp_path / "copy"))
    assert len(home.probes["cudnn"].libraries) == 1
    assert len(copy.probes["cudnn"].libraries) == 1
    assert copy.probes["cudnn"].libraries[0].path == "/data/user/lib/libcudnn.so.9"
    limit = copy.probes["limits"].facts["memory_limit_bytes"]
    assert limit == home.probes["limits"].facts["memory_limit_bytes"] == 1 << 30


def test_identity_is_kept_where_it_is_asked_for_but_no_secret(tmp_path: Path) -> None:
    source = machine(tmp_path / "home", PERSONAL, TOLD)
    record(str(tmp_path / "copy"), Host(str(source)), keep_identity=True)

    text = everything(tmp_path / "copy")
    for name in ("/home/marianne", "lab-box-17", "aaaaaaaa-bbbb"):
        assert name in text
    assert "hunter2" not in text


@pytest.mark.parametrize("keep_identity", [False, True])
def test_secrets_inside_values_are_in_no_snapshot(tmp_path: Path, keep_identity: bool) -> None:
    secret = "a1B2c3D4e5F6g7H8i9J0"
    told = {
        "environment": {
            "PIP_INDEX_URL": f"https://example.org/simple?token={secret}",
            "HF_HOME": f"/data/hf_{secret}/hub",
            "NCCL_DEBUG_FILE": f"Bearer {secret}",
        }
    }
    files = {"/usr/lib/os-release": "NAME=x\n", f"/opt/sk-{secret}/lib/libcudnn.so.9": "no library"}
    told["environment"]["LD_LIBRARY_PATH"] = f"/opt/sk-{secret}/lib"
    source = machine(tmp_path / "home", files, told)

    report = report_of(str(source))
    record(str(tmp_path / "copy.machine"), Host(str(source)), keep_identity=keep_identity)

    assert secret not in msgspec.json.encode(report).decode()
    assert secret not in (tmp_path / "copy.machine").read_text()
    if os.name != "nt":
        assert (tmp_path / "copy.machine").stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_where_it_was_interrupted(tmp_path: Path) -> None:
    class Interrupted(Host):
        def system(self, name: str) -> object:
            raise KeyboardInterrupt

    (tmp_path / "here").mkdir()
    with pytest.raises(KeyboardInterrupt):
        record(str(tmp_path / "here" / "copy"), Interrupted(str(HOSTS / f"{NAMES[0]}.machine")))
    assert list((tmp_path / "here").iterdir()) == []


def test_nothing_is_left_where_it_could_not_be_written(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    host = Host(str(HOSTS / "hgx-h100-eight-gpus.machine"))
    with pytest.raises(BadInput, match="cannot be written"):
        record(str(here / "none" / "copy"), host)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("there", ["a file", "a folder that holds something", "a link"])
def test_what_is_there_stays(tmp_path: Path, there: str) -> None:
    target = tmp_path / "copy"
    if there == "a file":
        target.write_text("mine")
    elif there == "a link":
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to("elsewhere")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(BadInput):
        record(str(target), Host(str(HOSTS / f"{NAMES[0]}.machine")))
    assert everything(tmp_path) == before


OUTSIDE = "what lies outside the machine"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["/proc/cpuinfo", "/etc/os-release", "/sys/class", "/usr/lib", "/proc/driver"]),
        st.sampled_from(
            [
                "->{outside}/secret",
                "->{outside}",
                "->../../../../../../../../{outside}/secret",
                "->cpuinfo",
                "->/",
                "->.",
                "->..",
                "->/proc/cpuinfo",
                "plain",
            ]
        ),
        min_size=1,
    )
)
def test_no_link_of_a_hostile_machine_leads_out_of_it(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text(OUTSIDE)
    told = {path: content.format(outside=outside) for path, content in files.items()}
    source = machine(folder / "machine", told, {"environment": {"LD_LIBRARY_PATH": "/usr/lib"}})

    record(str(folder / "copy"), Host(str(source)))

    assert OUTSIDE not in everything(folder / "copy")
    assert sorted(path.name for path in folder.iterdir()) == ["copy", "machine", "outside"]
    for at, folders, names in os.walk(folder / "copy"):
        for path in (Path(at, name) for name in (*folders, *names)):
            if path.is_symlink():
                target = Path(os.path.normpath(path.parent / os.readlink(path)))
                assert target.is_relative_to(folder / "copy" / "root"), path
    report_of(str(folder / "copy"))


def test_a_fifo_in_a_hostile_machine_makes_nobody_wait(tmp_path: Path) -> None:
    source = machine(tmp_path / "machine", {"/proc/meminfo": "x"})
    os.mkfifo(source / "root" / "proc" / "cpuinfo")
    record(str(tmp_path / "copy"), Host(str(source)))
    assert not (tmp_path / "copy" / "root" / "proc" / "cpuinfo").is_fifo()
