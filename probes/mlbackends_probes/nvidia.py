"""NVIDIA GPUs: the driver's kernel module, and NVML's data about each GPU.

Finds:    GPUs on PCI, the kernel module and its settings, device nodes, every libnvidia-ml.so.1.
Usable:   NVML initialises and answers for a GPU. It computes nothing: that is cuda_driver's part.
Caveats:  in a container /proc and /sys show all GPUs of the machine, NVML those that were given to
          it. NVML ignores CUDA_VISIBLE_DEVICES and counts the GPUs in the order of the bus.
Source:   NVML API reference; NVIDIA driver README, /proc/driver/nvidia; Linux sysfs-bus-pci.
"""

from typing import Any

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.host import Host
from mlbackends.host.pci import (
    DRIVER_FACTS,
    FOLDER,
    PciDevice,
    display_driver,
    is_redirected,
    link_facts,
    link_now,
    of_vendor,
    pci_devices,
)
from mlbackends.libraries.c_calls import CDLL
from mlbackends.libraries.cuda import driver
from mlbackends.libraries.cuda.visible_devices import environment, visibility_warnings
from mlbackends.libraries.library_names import native_names
from mlbackends.model.records import Answer, Device, Finding, Library, Presence, nonempty

GROUP = "accelerator"


#: The kernel's part of the driver, under Linux and Windows.
_MODULES = ("nvidia", "nvlddmkm")
#: Where the daemon of the multi-process service has its pipes. Source: NVIDIA, "Multi-Process Service".
_MPS_FOLDER = "/tmp/nvidia-mps"  # noqa: S108


def find(host: Host) -> Finding:
    """Look for GPUs, kernel module, nodes and library, and report which of them is missing."""
    on_bus = of_vendor(host, "10de")
    # Not the virtual functions that the driver makes of a GPU for virtual machines.
    gpus = [
        device
        for device in on_bus
        if (device.is_display or device.is_accelerator) and not device.is_virtual_function
    ]
    libraries = driver.driver_libraries(host, "nvidia", "libnvidia-ml")
    module = driver.kernel_module(host)
    nodes = driver.device_nodes(host)
    switches = sum(device.class_code.startswith("0680") for device in on_bus)
    fabric_manager = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
    is_jetson = "nvidia,tegra" in host.read("/proc/device-tree/compatible", 4096)
    facts = {
        **module,
        "nvswitches": switches or None,
        "fabric_manager": host.exists(fabric_manager) if switches else None,
        "persistence_daemon": host.exists("/run/nvidia-persistenced/socket")
        if on_bus and host.platform == "linux"
        else None,
        "mps_daemon": host.exists(f"{host.env('CUDA_MPS_PIPE_DIRECTORY') or _MPS_FOLDER}/control")
        if on_bus and host.platform == "linux"
        else None,
        "wsl": driver.on_wsl(host) or None,
        "jetson_model": host.read("/proc/device-tree/model", 256) if is_jetson else "",
        "environment": environment(host),
        "device_nodes": nodes,
        "docker_passes_gpus": _docker_passes_gpus(host) if gpus else None,
        "mig_instances": driver.mig_instances(host),
        "pci_gpu_count": len(gpus) or None,
    }
    devices = tuple(_device(host, index, gpu) for index, gpu in enumerate(gpus))
    warnings = driver.library_warnings(host, libraries)
    if devices or libraries:
        uuids = tuple(device.uuid for device in devices)
        warnings += visibility_warnings(host, len(gpus), uuids if all(uuids) else ())
    # gVisor and others show the nodes, and neither /proc/driver/nvidia nor the module.
    has_driver = bool(module) or "/dev/nvidiactl" in nodes
    reasons = _missing(host, gpus, libraries, has_driver)
    if has_driver and not driver.on_wsl(host) and host.platform == "linux":
        warnings += driver.node_problems(host, nodes)
    only_module = has_driver and not libraries and not devices
    return Finding(
        libraries=tuple(libraries),
        devices=devices,
        facts=nonempty(facts),
        version=driver.driver_release(host),
        presence=Presence.FOUND if only_module else None,
        reasons=reasons,
        warnings=warnings,
    )


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the library's own release, which needs no driver."""
    from mlbackends.libraries.cuda import nvml

    release = nvml.query_system(nvml.bound(opened), "nvmlSystemGetNVMLVersion")
    return Answer(library, facts=nonempty({"nvml_version": release}))


def use(opened: CDLL, library: Library) -> Answer:
    """Return everything that NVML reports about the driver and each GPU."""
    from mlbackends.libraries.cuda import nvml

    bound = nvml.bound(opened)
    nvml.must(bound, "nvmlInit")
    release = nvml.query_system(bound, "nvmlSystemGetDriverVersion")
    cuda = nvml.query_system(bound, "nvmlSystemGetCudaDriverVersion_v2")
    branch = nvml.query_system(bound, "nvmlSystemGetDriverBranch")
    count = nvml.must(bound, "nvmlDeviceGetCount")
    devices: list[Device] = []
    problems: list[tuple[int, Reason]] = []
    described: list[tuple[int, Any]] = []
    for index, handle in nvml.all_gpus(bound, count):
        if isinstance(handle, Reason):
            devices.append(Device("cuda", index, reasons=(handle,)))
            continue
        parts, reasons = nvml.described(bound, index, handle)
        devices += parts
        problems += [(index, reason) for reason in reasons]
        if parts[0].presence is Presence.LOADABLE:
            described.append((index, handle))
    facts = {
        "driver_release": release,
        "cuda_version": driver.decode(cuda) if cuda else "",
        "driver_branch": "" if branch is None else nvml.text_of(branch, "branch"),
        "gpu_count": count,
        "topology": nvml.topology(bound, described) if len(described) > 1 else None,
    }
    facts = nonempty(facts)
    if described:
        facts["processes"] = nvml.processes(bound, described)
    library = replace(library, version=release or library.version)
    learned = Answer(library, tuple(devices), facts, tuple(nvml.of_several(problems)))
    if not count:
        message = "nvmlDeviceGetCount returned 0: no GPU was given to this system or container"
        raise NotUsable("no-device", message, learned=learned)
    if not described:
        reason = devices[0].reasons[0]
        raise NotUsable(reason.code, f"GPU 0: {reason.message}", reason.hint, learned)
    return learned


def _docker_passes_gpus(host: Host) -> bool | None:
    """Return whether Docker can give GPUs to containers, by a hook, a runtime or CDI; None without Docker."""
    if not host.is_file("/usr/bin/dockerd"):
        return None
    hooks = ("container-runtime-hook", "container-toolkit", "container-runtime", "cdi-hook")
    has_hook = any(host.is_file(f"/usr/bin/nvidia-{name}") for name in hooks)
    specifications = host.glob("/etc/cdi/*") + host.glob("/var/run/cdi/*") + host.glob("/run/cdi/*")
    return has_hook or any("nvidia" in path for path in specifications)


def _device(host: Host, index: int, gpu: PciDevice) -> Device:
    """Return a GPU as the kernel shows it."""
    text = host.read(f"/proc/driver/nvidia/gpus/{gpu.address}/information", 4096)
    pairs = (line.partition(":") for line in text.splitlines())
    information = {name.strip(): value.strip() for name, _, value in pairs}
    firmware = information.get("GPU Firmware", "")
    facts = {
        "pci_id": f"{gpu.vendor}:{gpu.device}",
        **link_facts(gpu),
        "kernel_driver": gpu.driver,
        "iommu_domain": gpu.iommu_domain,
        "peers_redirected": is_redirected(host, gpu),
        "root_port_redirects": is_redirected(host, gpu, by_root=True),
        "excluded": information.get("GPU Excluded", "").lower() == "yes" or None,
        "gsp_firmware": firmware if firmware != "N/A" else "",
    }
    installed = display_driver(host, gpu)
    facts |= {name: installed[name] for name in DRIVER_FACTS if name in installed}
    uuid = information.get("GPU UUID", "")
    name = information.get("Model", "") or installed.get("name", "")
    return Device(
        "cuda",
        index,
        name="" if name == "Unknown" else name,
        driver=driver.driver_release(host) if gpu.driver in _MODULES else "",
        memory_bytes=installed.get("memory_bytes"),
        pci_address=gpu.address,
        uuid="" if "?" in uuid else uuid,
        numa_node=gpu.numa_node,
        facts=nonempty(facts),
        volatile=dict(link_now(gpu)),
        reasons=_unbound(gpu),
    )


def _unbound(gpu: PciDevice) -> tuple[Reason, ...]:
    """Return why the nvidia module does not have a GPU, () if it has."""
    name = f"the GPU {gpu.address} ({gpu.vendor}:{gpu.device})"
    if gpu.driver in _MODULES:
        return ()
    if gpu.driver == "nouveau":
        message = f"{name} is driven by nouveau, with which CUDA does not work"
        return (Reason("nouveau-bound", message, "install NVIDIA's driver, which disables nouveau"),)
    if gpu.is_for_guests:
        message = f"{name} is held by {gpu.driver}, to be given to a virtual machine"
        return (Reason("bound-elsewhere", message),)
    state = f"driven by {gpu.driver}" if gpu.driver else "on the bus, and no kernel driver has it"
    return (Reason("no-driver", f"{name} is {state}", "install NVIDIA's driver"),)


def _missing(
    host: Host, gpus: list[PciDevice], libraries: list[Library], has_driver: bool
) -> tuple[Reason, ...]:
    """Return which of GPU, kernel module and library is missing."""
    if driver.on_wsl(host):
        return () if libraries else (driver.no_library(host, "libnvidia-ml.so.1", "utility"),)
    if not gpus and not has_driver and not libraries:
        missing = driver.no_library(host, "libnvidia-ml.so.1", "utility")
        has_bus = pci_devices(host) or host.listdir(FOLDER)
        bus = "no NVIDIA GPU on the PCI bus" if has_bus else "no PCI bus to look at"
        module = "driver" if host.platform == "win32" else "kernel module"
        return (replace(missing, message=f"{bus}, no {module}, {missing.message}"),)
    reasons: tuple[Reason, ...] = ()
    if not has_driver and not gpus:
        message = native_names(
            host,
            "libnvidia-ml.so.1 is installed, and there is neither a GPU nor the nvidia kernel module",
        )
        reasons += (Reason("no-device", message),)
    elif not has_driver:
        unbound = _unbound(gpus[0])
        message = f"the GPU {gpus[0].address} has its driver, and the module reports no release"
        reasons += unbound or (Reason("unreadable", message),)
    if not libraries:
        reasons += (driver.no_library(host, "libnvidia-ml.so.1", "utility"),)
    return reasons
