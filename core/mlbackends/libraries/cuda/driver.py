"""NVIDIA's driver as files: its libraries, kernel module and device nodes; and what CUDA's numbers mean.

A driver runs everything built for its own CUDA release or an older one. Since CUDA 11 it also runs programs
built for a newer release of the same major version, unless they use features that were added later.

Source: NVIDIA driver README, chapters on /proc/driver/nvidia and device files; CUDA on WSL guide; MIG User
Guide; CUDA Toolkit release notes, tables 2 and 3 (Linux); CUDA Compatibility, tables 1 and 2.
"""

import os

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.device_nodes import denied
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.pci import display_driver, of_vendor
from mlbackends.host.system.surroundings import container_signs
from mlbackends.libraries.c_calls import Calls
from mlbackends.libraries.cuda.visible_devices import VARIABLE, lacks_capability, visible
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, FactValue, Library, nonempty

WSL_FOLDER = "/usr/lib/wsl/lib"
_NO_HMM = "uvm_disable_hmm"


def on_wsl(host: Host) -> bool:
    """Return whether the GPU is reached through Windows, without a kernel module in Linux."""
    return host.exists("/dev/dxg") or host.exists(f"{WSL_FOLDER}/libcuda.so.1")


def driver_libraries(host: Host, name: str, stem: str) -> list[Library]:
    """Return every copy of one of the driver's libraries, with the release in its file name."""
    copies = []
    for library in libraries_named(host, name, stem, folders=_folders(host)):
        release = release_in(os.path.basename(host.realpath(library.path)))
        if host.platform == "win32" and not library.reasons:
            from mlbackends.libraries.pe import pe_headers

            number = pe_headers(host, host.realpath(library.path)).file_version
            release = _release_of_windows(number)
            # nvcuda.dll names its CUDA, which is its version; that of the others is the release.
            version = release if name == "nvidia" else ""
            version = version if library.version == number else library.version
            library = replace(library, version=".".join(version.split(".")[:2]))
        facts: dict[str, FactValue] = {"driver_release": release} if release else {}
        if "/compat" in os.path.dirname(library.path):
            facts["forward_compatibility"] = True
        copies.append(replace(library, facts=facts) if facts else library)
    return copies


def no_library(host: Host, library: str, capability: str) -> Reason:
    """Return the reason for a driver library that is nowhere."""
    reason = absent(host, library, folders=_folders(host))
    hint = lacks_capability(host, capability)
    return replace(reason, hint=hint) if hint else reason


def library_warnings(host: Host, libraries: list[Library]) -> tuple[Reason, ...]:
    """Return a warning if the copy that programs get is of another release, or not Windows's on WSL."""
    winner = next((library for library in libraries if library.wins), None)
    if winner is None:
        return ()
    path = host.realpath(winner.path)
    if on_wsl(host) and not path.startswith((WSL_FOLDER, "/usr/lib/wsl/")):
        message = f"on WSL programs get {winner.path} instead of Windows's driver in {WSL_FOLDER}"
        hint = "remove the Linux driver's packages inside WSL"
        return (Reason("conflict", message, hint),)
    release = winner.facts.get("driver_release")
    loaded = driver_release(host)
    if not release or not loaded or release == loaded or "forward_compatibility" in winner.facts:
        return ()
    message = f"the kernel module is {loaded}, and {winner.path} is of {release}"
    hint = "reboot, or reload the nvidia kernel modules; in a container, restart it"
    if host.platform == "win32":
        message = f"the display driver is {loaded}, and {winner.path} is of {release}"
        hint = "restart Windows; remove copies that other programs installed"
    return (Reason("driver-mismatch", message, hint),)


def kernel_module(host: Host) -> dict[str, FactValue]:
    """Return release, kind and settings of the kernel module that is loaded; {} without one."""
    release = driver_release(host)
    if not release:
        return {}
    version = host.read("/proc/driver/nvidia/version", 4096).partition("\n")[0]
    kind = "open" if "Open Kernel Module" in version else "proprietary"
    lines = host.read("/proc/driver/nvidia/params", 16 << 10).splitlines()
    listed = table("libraries/cuda/driver")["module_parameters"]
    lines += [f"{_NO_HMM}: {host.read(f'/sys/module/nvidia_uvm/parameters/{_NO_HMM}', 16)}"]
    return nonempty(
        {
            "driver_release": release,
            "kernel_module": kind if version.startswith("NVRM version:") else "",
            "module_parameters": {
                name: value.strip()
                for name, _, value in (line.partition(": ") for line in lines)
                if name in listed and value.strip()
            },
        }
    )


def mig_instances(host: Host) -> list[dict[str, FactValue]]:
    """Return the MIG instances that the kernel module shows: GPU, instance, its compute instances.

    In a container these are the instances that it was given, if /proc is limited to them.
    """
    instances: dict[tuple[int, int], list[int]] = {}
    mig = "/proc/driver/nvidia/capabilities/gpu*/mig/gi*"
    for path in (*host.glob(f"{mig}/access"), *host.glob(f"{mig}/ci*/access")):
        if match := _CAPABILITY.search(path):
            place = int(match[1]), int(match[2])
            if not match[3]:
                instances[place] = []
            elif place in instances:
                instances[place].append(int(match[3]))
    return [
        {
            "gpu": gpu,
            "gpu_instance": instance,
            "compute_instances": sorted(instances[gpu, instance]),
        }
        for gpu, instance in sorted(instances)
    ]


def device_nodes(host: Host) -> list[str]:
    """Return the device nodes of the driver: one a GPU, and nvidiactl, nvidia-uvm and others."""
    return [f"/dev/{name}" for name in host.listdir("/dev") if name.startswith("nvidia")]


def node_problems(host: Host, nodes: list[str]) -> tuple[Reason, ...]:
    """Return why a program cannot reach the GPUs although the kernel module is loaded."""
    if not any(name.removeprefix("/dev/nvidia").isdecimal() for name in nodes):
        return (
            Reason(
                "device-nodes-missing",
                "the nvidia kernel module is loaded, and there is no /dev/nvidia0",
                "in a container: start it with its GPUs (--gpus all); else run nvidia-smi as root",
            ),
        )
    problems = []
    # The first CUDA program creates the node with nvidia-modprobe, but not in a container.
    is_created = host.exists("/usr/bin/nvidia-modprobe") and not container_signs(host)
    if "/dev/nvidia-uvm" not in nodes and not is_created:
        message = "there is no /dev/nvidia-uvm, without which CUDA cannot start"
        problems.append(
            Reason("device-nodes-missing", message, "load it with nvidia-modprobe -u -c 0 as root")
        )
    for node in nodes:
        plain = node.removeprefix("/dev/nvidia")
        if plain.isdecimal() or plain in ("ctl", "-uvm"):
            reason = denied(host, node)
            if reason is not None:
                problems.append(reason)
    return tuple(problems)


def _folders(host: Host) -> tuple[str, ...]:
    if host.platform == "win32":
        folders = table("libraries/cuda/driver")["windows_folders"]
        roots = {"SYSTEMROOT": "C:/Windows", "PROGRAMFILES": "C:/Program Files"}
        places = {name: (host.folders(name) or [usual])[0] for name, usual in roots.items()}
        return tuple(folder.format(**places) for folder in folders)
    folders = table("libraries/cuda/driver")["folders"]
    return tuple(folder.format(machine=host.machine) for folder in folders)


_MAJOR_LIMIT = 100
_RELEASE = pattern(r"(?<!\d)(?<!\d\.)(\d{3})\.(\d{1,4})(?:\.(\d{1,4}))?(?![\d.]*\d)")
_CAPABILITY = pattern(r"/gpu(\d{1,4})/mig/gi(\d{1,4})(?:/ci(\d{1,4}))?/access$")
_NUMBER = pattern(r"(\d{1,2})\.(\d{1,2})(?!\d)")


def decode(number: int) -> str:
    """Return the release that CUDA's functions and CUDA_VERSION encode as a number: 13020 is "13.2".

    "" if it is not a release, such as 0, which the runtime returns without a driver.
    """
    major, rest = divmod(number, 1000)
    return f"{major}.{rest // 10}" if 1 <= major < _MAJOR_LIMIT and number % 10 == 0 else ""


def release_in(text: str) -> str:
    """Return the driver release in a line or a file name ("580.65.06"), "" without one."""
    match = _RELEASE.search(text) if text else None
    return match[0] if match else ""


def _release_of_windows(version: str) -> str:
    """Return NVIDIA's release for a version of four numbers: the last digits of 32.0.15.6094 are 560.94."""
    digits = version.replace(".", "")[-5:] if version.count(".") == 3 else ""
    return f"{digits[:3]}.{digits[3:]}" if len(digits) == 5 and digits.isdecimal() else ""


@once_per_host
def driver_release(host: Host) -> str:
    """Return the release of the loaded kernel module, "" if none is loaded.

    On Windows it is that of the display driver. In a container it is the host's, as /proc and /sys are.
    """
    if host.platform == "win32":
        drivers = (display_driver(host, gpu) for gpu in of_vendor(host, "10de") if gpu.driver)
        versions = (str(driver["driver_version"]) for driver in drivers if "driver_version" in driver)
        return _release_of_windows(next(versions, ""))
    lines = host.read("/proc/driver/nvidia/version", 4096).splitlines()
    line = next((line for line in lines if line.startswith("NVRM version:")), "")
    return release_in(line) or release_in(host.read("/sys/module/nvidia/version", 256))


def cuda_of_driver(release: str) -> str:
    """Return the newest CUDA release whose features a driver has in full ("13.0" for 580.95.05).

    "" for a driver older than 8.0's. For one newer than the table it is the newest CUDA of the table; only
    the driver itself (cuDriverGetVersion) knows better.
    """
    driver = dotted_numbers(release)
    shipped = table("libraries/cuda/driver")["shipped"]
    return next((cuda for cuda, first in shipped if driver and driver >= dotted_numbers(first)), "")


def driver_for(cuda: str) -> str:
    """Return the oldest driver that runs programs built for a CUDA release ("580" for 13.2).

    "" if the tables do not list it.
    """
    match = _NUMBER.match(cuda)
    if not match:
        return ""
    major, minor = map(int, match.groups())
    releases = table("libraries/cuda/driver")
    shipped: dict[str, str] = dict(releases["shipped"])
    return releases["least"].get(str(major)) or shipped.get(f"{major}.{minor}", "")


def too_old_for(release: str, cuda: str) -> bool | None:
    """Return whether a driver is too old for programs of a CUDA release; None if not known."""
    driver, needed = dotted_numbers(release), dotted_numbers(driver_for(cuda))
    return driver < needed if driver and needed else None


def driver_warning(release: str, cuda: str, build: str) -> Reason | None:
    """Return the warning that a driver is too old for a build for a CUDA release, or None."""
    if not too_old_for(release, cuda):
        return None
    serves = cuda_of_driver(release)
    older = f" (it serves CUDA {serves})" if serves else ""
    return Reason(
        "driver-too-old",
        f"{build} needs driver {driver_for(cuda)} or newer; the driver here is {release}{older}",
        f"install driver {driver_for(cuda)} or newer, or use what was built for an older CUDA",
    )


# ---- what CUDA's functions return --------------------------------------------------------------


NO_DEVICE = 100


def refused(function: str, code: int, name: str = "", learned: Answer | None = None) -> NotUsable:
    """Return the exception for a CUDA function that returned something other than 0.

    errors.json explains the numbers for a user. The driver and the runtime share them since CUDA 10.1; only
    the runtime has 35. Source: CUDA Driver API and Runtime API, CUresult and cudaError_t.
    """
    meanings = table("libraries/cuda/errors")["meanings"]
    reason, meaning, hint = meanings.get(str(code), ("call-failed", "", ""))
    value = os.environ.get(VARIABLE)
    if code == NO_DEVICE and value is not None and not visible(value)[0]:
        value = value.encode(errors="replace").decode()  # a report holds text only
        hint = f'{VARIABLE} is "{value}", which hides every GPU: unset it'
    message = f"{function} returned {code}" + (f" ({name})" if name else "")
    return NotUsable(reason, f"{message}: {meaning}" if meaning else message, hint, learned)


class CudaCalls(Calls):
    """Calls the driver's or the runtime's functions; a reason explains the number for a user."""

    def failed(
        self, function: str, status: int, code: str = "", about: str = "", hint: str = ""
    ) -> NotUsable:
        """Return the exception for a function that returned something other than 0."""
        del code, about, hint
        return refused(function, status, self.name_of(status), self.learned)
