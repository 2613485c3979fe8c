"""Machines with a driver that are not there: tests/machines/NAME.toml describes each.

The libraries of the driver are those of tests/fakelibs, which say of each GPU what its description has. Its
files are made of the same. There are no others, but for what the kernel tells of processors and memory: that
is this machine's, and so are the hazards of `bare`, which describes a machine with nothing else.
"""

from __future__ import annotations

import os
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from running import in_process

from mlbackends.host.host import Host

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[1] / "machines"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))

#: Where the kernel would show a driver, a container or another accelerator of this machine.
_OF_A_DRIVER = (
    "/proc/devices", "/proc/driver", "/proc/modules", "/proc/self/cgroup", "/proc/self/mountinfo",
    "/sys/bus/pci", "/sys/class/accel", "/sys/class/dmi", "/sys/class/drm", "/sys/class/infiniband",
    "/sys/class/kfd", "/sys/module",
)  # fmt: skip
#: An interpreter without packages.
_PYTHON = {"executable": "/usr/bin/python3", "version": "3.12.3", "prefix": "/usr", "path": []}


def read(name: str) -> dict[str, Any]:
    """Return a description, with what it does not say from that which it extends."""
    own: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    found = read(own["extends"]) if "extends" in own else {}
    for expected in ("doctor", "audit", "facts", "page"):  # each machine has its own
        found.pop(expected, None)
    for key, value in own.items():
        found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


class Machine:
    """A described machine, of which `folder` gets the files. libraries: the folders of its stubs."""

    def __init__(self, name: str, folder: Path, libraries: list[Path]) -> None:
        self.description = read(name)
        self.folder = folder
        self.stubs = tuple(map(str, libraries))
        self.environment: dict[str, str] = {
            "LD_LIBRARY_PATH": os.pathsep.join(self.stubs),
            **_variables(self.description),
            **self.description.get("environment", {}),
        }
        for path, text in _files(self.description).items():
            at = folder / path.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text)

    def backends(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `backends ARGUMENTS` on it; the libraries are opened in a process of their own, as ever."""
        with self._in_place():
            return in_process(arguments, self.environment)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        real, can_open = Host.real, Host.can_open

        def place(host: Host, path: str) -> str:
            is_kernels = path.startswith(("/proc", "/sys")) and not path.startswith(_OF_A_DRIVER)
            # The folders above a stub are asked about on the way to it.
            is_stubs = any(f"{stub}/".startswith(f"{path.rstrip('/')}/") for stub in self.stubs)
            is_real = is_kernels or is_stubs or path.startswith(self.stubs)
            return real(host, path) if is_real else f"{self.folder}{path}"

        def is_allowed(host: Host, path: str) -> bool:
            return path not in self.description.get("forbidden", ()) and can_open(host, path)

        with (
            mock.patch.object(Host, "real", place),
            mock.patch.object(Host, "can_open", is_allowed),
            mock.patch.object(Host, "python", _PYTHON),
        ):
            yield


def _gpus(description: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is said of each GPU: of all, then of the one."""
    every = description.get("gpu", {})
    return [
        {"bus": f"0x{0x17 + 8 * index:02x}", **every, **description.get(f"gpu_{index}", {})}
        for index in range(description.get("gpus", 0))
    ]


def _variables(description: dict[str, Any]) -> dict[str, str]:
    """Return what the stubs read: FAKE_KEY of the driver, FAKE_KEY.INDEX of a GPU."""
    found = {f"FAKE_{key.upper()}": str(value) for key, value in description["driver"].items()}
    if "gpus" in description:
        found["FAKE_GPUS"] = str(description["gpus"])
    for index, gpu in enumerate(_gpus(description)):
        found |= {f"FAKE_{key.upper()}.{index}": str(value) for key, value in gpu.items()}
    return found


def _files(description: dict[str, Any]) -> dict[str, str]:
    """Return the files in which the kernel shows the GPUs and their driver, and those of the description."""
    release = description["driver"].get("driver", "")
    found = {"/proc/self/cgroup": "0::/user.slice\n", "/sys/bus/pci/devices/none/uevent": ""}
    for index, gpu in enumerate(_gpus(description)):
        address = f"0000:{int(gpu['bus'], 16):02x}:00.0"
        identifier = str(gpu.get("pci_id", "0x2330"))[2:].upper()
        found |= _pci(address, "nvidia", "30200", f"10DE:{identifier}")
        found[f"/proc/driver/nvidia/gpus/{address}/information"] = (
            f"Model: \t\t {gpu['name']}\nGPU UUID: \t GPU-00000000-0000-0000-0000-{index:012}\n"
            f"Device Minor: \t {index}\nGPU Excluded:\t No\n"
        )
        found[f"/dev/nvidia{index}"] = ""
    for card in description.get("cards", ()):
        for number in range(card.get("count", 1)):
            bus = card["bus"] + number * card.get("step", 1)
            found |= _pci(f"0000:{bus:02x}:00.0", card["driver"], card["class"], card["id"])
    if release:
        module = "NVIDIA UNIX Open Kernel Module for x86_64"
        found["/proc/driver/nvidia/version"] = f"NVRM version: {module}  {release}  Release Build\n"
        found["/sys/module/nvidia/version"] = f"{release}\n"
        found |= dict.fromkeys(("/dev/nvidiactl", "/dev/nvidia-uvm", "/usr/bin/nvidia-modprobe"), "")
    found |= description.get("files", {})
    return {path: text for path, text in found.items() if path not in description.get("without", ())}


def _pci(address: str, driver: str, class_code: str, number: str) -> dict[str, str]:
    folder = f"/sys/bus/pci/devices/{address}"
    lines = (f"DRIVER={driver}", f"PCI_CLASS={class_code}", f"PCI_ID={number}")
    return {
        f"{folder}/uevent": "\n".join((*lines, f"PCI_SLOT_NAME={address}\n")),
        f"{folder}/numa_node": "0\n",
    }
