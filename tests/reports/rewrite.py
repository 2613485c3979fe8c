"""Write the saved reports anew: ``python tests/reports/rewrite.py [NAME...]``. It needs a C compiler.

What NVML tells is in no file, so no recorded machine has it. Here the probe itself asks the fake NVML
of tests/fakelibs, and what it says goes into the report of a recorded machine, GPU by GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.host import archive
from mlbackends.host.host import Host
from mlbackends.model.records import Device, Presence, ProbeReport, Report
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent
HOSTS = FOLDER.parent / "hosts"
FAKES = FOLDER.parent / "fakelibs"
#: The probes whose word is kept, so that the files stay small.
KEPT = ("nvidia", "cuda_driver", "cuda_runtime", "host", "cpu", "environment", "limits", "packages")


class Saved(NamedTuple):
    """The recorded machine that NVML is asked on, what the fake is told, and files that are not there."""

    host: str
    fake: dict[str, str]
    without: tuple[str, ...] = ()


REPORTS = {
    "hgx-h100-sound": Saved(
        "hgx-h100-eight-gpus",
        {
            "FAKE_GPUS": "8",
            "FAKE_NAME": "NVIDIA H100 80GB HBM3",
            "FAKE_DRIVER": "560.35.03",
            "FAKE_CUDA": "12060",
            "FAKE_ECC": "1",
            "FAKE_EVENTS": "5",  # idle, software power cap
            "FAKE_FABRIC": "3",
            "FAKE_COMPUTE_MODE": "0",
        },
    ),
    "hgx-h100-failing": Saved(
        "hgx-h100-eight-gpus",
        {
            "FAKE_GPUS": "7",
            "FAKE_NAME": "NVIDIA H100 80GB HBM3",
            "FAKE_DRIVER": "560.35.03",
            "FAKE_CUDA": "12060",
            "FAKE_ECC": "1",
            "FAKE_UNCORRECTED.2": "15",
            "FAKE_ROWS.2": "2",
            "FAKE_ROW_PENDING.2": "1",
            "FAKE_ROW_FAILED.2": "1",
            "FAKE_EVENTS.2": "72",  # hardware slowdown, and that it is too hot
            "FAKE_FABRIC": "2",
            "FAKE_COMPUTE_MODE.2": "2",
            "FAKE_LINKS_UP.4": "2",
            "FAKE_UNCORRECTED.3": "7",
            "FAKE_RECOVERY.3": "1",
            "FAKE_PERSISTENCE": "0",
        },
        without=("run/nvidia-fabricmanager", "run/nvidia-persistenced"),
    ),
    "slurm-job-mig": Saved(
        "slurm-job",
        {
            "FAKE_GPUS": "1",
            "FAKE_NAME": "NVIDIA A100-SXM4-40GB",
            "FAKE_DRIVER": "535.161.08",
            "FAKE_CUDA": "12020",
            "FAKE_ECC": "0",
            "FAKE_MIG": "1",
            "FAKE_COMPUTE_MODE": "0",
            "FAKE_EVENTS": "0",
        },
    ),
    "docker-lost-gpu": Saved("docker-geforce-compat", {"FAKE_NVML_INIT": "999"}),
}


def built(saved: Saved, library: Path) -> Report:
    """Return the report of a machine with what NVML says of its GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder) / saved.host
        archive.read(str(HOSTS / f"{saved.host}.machine")).unpack(str(machine))
        for path in saved.without:
            shutil.rmtree(machine / "root" / path)
        report = report_of(str(machine))
    found = report.probes["nvidia"]
    told = asked(saved, library)
    joined = replace(
        found,
        presence=told.presence,
        version=told.version or found.version,
        facts={**found.facts, **told.facts},
        devices=tuple(devices(found.devices, told.devices)),
        reasons=told.reasons,
        warnings=found.warnings + told.warnings,
    )
    kept = {name: report.probes[name] for name in KEPT} | {"nvidia": joined}
    return replace(report, depth=Presence.USABLE, root="/", tool="backends", probes=kept)


def asked(saved: Saved, library: Path) -> ProbeReport:
    """Return what the probe says where the fake is the only NVML."""
    before = dict(os.environ)
    os.environ.update(saved.fake, LD_LIBRARY_PATH=str(library.parent))
    try:
        report = survey(("nvidia",), Host(), Presence.USABLE)
    finally:
        os.environ.clear()
        os.environ.update(before)
    probe = report.probes["nvidia"]
    facts = {name: value for name, value in probe.facts.items() if name in TOLD_BY_NVML}
    mine = next(copy for copy in probe.libraries if copy.path == str(library))
    return replace(probe, presence=mine.presence, facts=facts, reasons=mine.reasons)


TOLD_BY_NVML = ("gpu_count", "driver_release", "driver_branch", "cuda_version", "nvml_version")


def devices(found: tuple[Device, ...], told: tuple[Device, ...]) -> Iterator[Device]:
    """Yield each GPU of the machine with what NVML says of it, at the machine's address."""
    gpus = [device for device in told if device.kind == "cuda" and device.presence.level > 1]
    for device, answer in zip(found, gpus, strict=False):
        yield replace(
            answer,
            pci_address=device.pci_address,
            uuid=device.uuid,
            serial="",
            numa_node=device.numa_node,
            driver=device.driver,
            facts={**device.facts, **answer.facts},
            volatile={**answer.volatile, **device.volatile},
        )
    yield from found[len(gpus) :]
    yield from (replace(device, uuid="redacted-90") for device in told if device.kind == "mig")


def main(names: list[str]) -> None:
    """Write the named reports, all by default."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libnvidia-ml.so.1"
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library)]
        subprocess.run([*command, str(FAKES / "nvml.c")], check=True)
        for name in names or REPORTS:
            data = msgspec.json.encode(built(REPORTS[name], library))
            path = FOLDER / f"{name}.json"
            path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")
            print(f"{path.name} was written")


if __name__ == "__main__":
    main(sys.argv[1:])
