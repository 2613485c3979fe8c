"""Real drivers without a GPU: each computes, and what the probes tell is what other programs tell.

The job `vendors` of .ci/systems brings them: VENDORS names a folder with Debian's packages, unpacked, and
with a Python that has Intel's wheels.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "VENDORS" not in os.environ, reason="VENDORS names no folder of drivers: .ci/systems vendors"
)

VENDORS = Path(os.environ.get("VENDORS", "/nowhere"))
DEBIAN, WHEELS = VENDORS / "debian", VENDORS / "wheels"
LIBRARIES = DEBIAN / "usr/lib" / f"{os.uname().machine}-linux-gnu"
BASE = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES)}
#: What pyopencl tells of each device, by the names that the probe has for it.
PYOPENCL = """
import json, pyopencl as cl
rows = [
    {"platform": platform.name, "name": device.name, "driver": device.driver_version,
     "capability": device.version, "memory_bytes": device.global_mem_size,
     "compute_units": device.max_compute_units, "max_workgroup_size": device.max_work_group_size,
     "workgroup_memory_bytes": device.local_mem_size, "max_allocation_bytes": device.max_mem_alloc_size,
     "float64": bool(device.double_fp_config),
     "device_type": "cpu" if device.type & cl.device_type.CPU else "other"}
    for platform in cl.get_platforms() for device in platform.get_devices()
]
print(json.dumps(rows))
"""
#: A kernel that adds, started through SYCL.
DPCTL = """
import json, array, dpctl, dpctl.memory, dpctl.program
queue = dpctl.SyclQueue("opencl:cpu")
source = '''__kernel void add(__global const uint *a, __global const uint *b, __global uint *c) {
    size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}'''
program = dpctl.program.create_program_from_source(queue, source)
first, second, sums = (dpctl.memory.MemoryUSMShared(1024, queue=queue) for _ in range(3))
numbers = memoryview(array.array("I", range(256))).cast("B")
first.copy_from_host(numbers)
second.copy_from_host(numbers)
queue.submit(program.get_sycl_kernel("add"), [first, second, sums], [256]).wait()
told = memoryview(bytearray(1024))
sums.copy_to_host(told)
device = queue.sycl_device
print(json.dumps({"sums": list(told.cast("I")), "name": device.name.strip(), "driver": device.driver_version,
                  "units": device.max_compute_units, "cpu": device.is_cpu}))
"""


def output(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command, env={**BASE, **variables}, capture_output=True, text=True, timeout=300, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def probe(name: str, **variables: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "mlbackends", "info", name, "--format", "json")
    report: dict[str, Any] = json.loads(output(*command, "--timeout", "60", **variables))
    found: dict[str, Any] = report["probes"][name]
    return found


def told_by_wheels(program: str, **variables: str) -> Any:
    return json.loads(output(WHEELS / "bin/python", "-c", program, **variables))


def intel(folder: Path) -> str:
    """Return a folder with the file that the wheel's own should be."""
    (folder / "intel.icd").write_text(f"{WHEELS}/lib/libintelocl.so\n", encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("driver", ["pocl", "intel"])
def test_opencl_adds_on_the_cpu(driver: str, tmp_path: Path) -> None:
    vendors = intel(tmp_path) if driver == "intel" else str(DEBIAN / "etc/OpenCL/vendors")
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)

    found = probe("opencl", OCL_ICD_VENDORS=vendors, HOME=str(home), XDG_CACHE_HOME="")
    others = told_by_wheels(PYOPENCL, OCL_ICD_VENDORS=vendors)
    (loader,) = (library for library in found["libraries"] if library["path"].startswith(str(LIBRARIES)))
    about_loader = output(DEBIAN / "usr/bin/clinfo", OCL_ICD_VENDORS=vendors)

    assert found["presence"] == loader["presence"] == "usable"
    assert len(found["devices"]) == len(others) == 1
    device, other = found["devices"][0], others[0]
    assert device["presence"] == "usable"
    assert device["facts"]["device_type"] == "cpu"
    told = {**device, **device["facts"]}
    # PoCL leaves of the memory what the machine has free.
    assert abs(told["memory_bytes"] - other.pop("memory_bytes")) < 2 << 30
    assert {name: told[name] for name in other} == {**other, "name": other["name"].strip()}
    assert re.search(r"ICD loader Version +(\S+)", about_loader)[1] == loader["version"]  # type: ignore[index]
    assert not [file for file in home.rglob("*") if file.is_file()]


def test_the_file_of_intels_wheel_names_no_place_of_its_own() -> None:
    folder = WHEELS / "etc/OpenCL/vendors"

    found = probe("opencl", OCL_ICD_VENDORS=str(folder))

    assert {warning["code"] for warning in found["warnings"]} == {"dangling-link"}
    assert found["reasons"][0]["code"] == "no-driver"


def manifest(folder: Path, library: str) -> dict[str, str]:
    """Return the variables by which a loader takes one driver alone."""
    file = folder / "driver.json"
    inner = {"library_path": library, "api_version": "1.3.0"}
    file.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": inner}), encoding="utf-8")
    return {"VK_DRIVER_FILES": str(file), "VK_ICD_FILENAMES": str(file)}


def test_vulkan_adds_on_the_cpu(tmp_path: Path) -> None:
    variables = manifest(tmp_path, str(LIBRARIES / "libvulkan_lvp.so"))
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)

    found = probe("vulkan", HOME=str(home), XDG_CACHE_HOME="", **variables)
    text = output(DEBIAN / "usr/bin/vulkaninfo", **variables)
    other: dict[str, str] = {}
    for name, value in re.findall(r"^\s*(\w+)\s+= (.*?)\s*$", text, re.MULTILINE):
        other.setdefault(name, value)

    assert found["presence"] == "usable"
    (device,) = found["devices"]
    facts = device["facts"]
    assert (device["name"], device["driver"]) == (
        other["deviceName"],
        other["driverVersion"].split()[0],
    )
    assert device["capability"] == other["apiVersion"].split()[0]
    assert f"0x{facts['vendor_id']}" == other["vendorID"]
    assert f"PHYSICAL_DEVICE_TYPE_{facts['device_type']}".upper() == other["deviceType"]
    assert (facts["driver_name"], facts["driver_info"]) == (
        other["driverName"],
        other["driverInfo"],
    )
    assert facts["max_storage_buffer_bytes"] == int(other["maxStorageBufferRange"])
    assert facts["workgroup_memory_bytes"] == int(other["maxComputeSharedMemorySize"])
    assert facts["max_workgroup_size"] == int(other["maxComputeWorkGroupInvocations"])
    assert not [file for file in home.rglob("*") if file.is_file()]


def test_a_manifest_of_a_missing_driver_is_named(tmp_path: Path) -> None:
    found = probe("vulkan", **manifest(tmp_path, "/opt/gone/libvulkan_gone.so"))

    assert found["presence"] == "loadable"
    assert [warning["code"] for warning in found["warnings"]] == ["dangling-link"]
    assert "no-driver" in {reason["code"] for reason in found["reasons"]}


@pytest.mark.parametrize("how", ["abort()", "for (;;) pause()"])
@pytest.mark.parametrize("name", ["vulkan", "opencl"])
def test_a_driver_that_crashes_or_hangs_ends_its_own_process_alone(
    name: str, how: str, tmp_path: Path
) -> None:
    if not (compiler := shutil.which("cc")):
        pytest.skip("no C compiler (cc) to make a driver with")
    code = "#include <stdlib.h>\n#include <unistd.h>\n"
    code += f"__attribute__((constructor)) static void begin(void) {{ {how}; }}\n"
    driver = tmp_path / "libbad.so"
    compilation = [compiler, "-shared", "-fPIC", "-xc", "-", "-o", str(driver)]
    subprocess.run(compilation, input=code.encode(), check=True)
    (tmp_path / "bad.icd").write_text(f"{driver}\n", encoding="utf-8")
    variables = manifest(tmp_path, str(driver)) | {"OCL_ICD_VENDORS": str(tmp_path)}

    command = [sys.executable, "-m", "mlbackends", "info", name, "cpu", "--format", "json"]
    probes = json.loads(output(*command, "--timeout", "5", **variables))["probes"]

    codes = {reason["code"] for reason in probes[name]["reasons"]}
    assert codes & ({"crashed"} if how == "abort()" else {"timed-out"})
    assert probes["cpu"]["presence"] == "found"


def test_sycl_adds_on_the_cpu(tmp_path: Path) -> None:
    """The runtime has no interface of C: a program of dpctl's computes, and OpenCL sees the same device."""
    variables = {"OCL_ICD_VENDORS": intel(tmp_path)}
    told = told_by_wheels(DPCTL, **variables)
    (device,) = probe("opencl", **variables)["devices"]
    command = (sys.executable, "-m", "mlbackends", "info", "sycl", "--format", "json")
    text = output(*command, "--python", str(WHEELS / "bin/python"))
    found = json.loads(text)["probes"]["sycl"]
    versions = "import importlib.metadata as m, json; print(json.dumps(m.version('intel-sycl-rt')))"

    assert told["sums"] == [2 * number for number in range(256)]
    assert told["cpu"]
    assert (told["name"], told["driver"]) == (device["name"], device["driver"])
    assert told["units"] == device["facts"]["compute_units"]
    assert "opencl" in found["facts"]["adapters"]
    assert f"intel-sycl-rt {told_by_wheels(versions)}" in {library["owner"] for library in found["libraries"]}


def test_level_zero_says_that_no_driver_starts() -> None:
    found = probe("xpu")

    (loader,) = (library for library in found["libraries"] if library["path"].startswith(str(LIBRARIES)))
    assert loader["presence"] == "loadable"
    assert [reason["code"] for reason in loader["reasons"]] == ["no-driver"]
    assert "zeInit returned 0x78000001" in loader["reasons"][0]["message"]
    assert LIBRARIES.joinpath(f"libze_loader.so.{loader['version']}").exists()


def test_hip_says_that_it_sees_no_gpu() -> None:
    found = probe("rocm")

    (runtime,) = (library for library in found["libraries"] if library["path"].startswith(str(LIBRARIES)))
    assert runtime["presence"] == "loadable"
    assert [reason["code"] for reason in runtime["reasons"]] == ["no-device"]
    assert "hipGetDeviceCount returned 100" in runtime["reasons"][0]["message"]
    assert any(file.name.endswith(runtime["version"]) for file in LIBRARIES.glob("libamdhip64.so.*"))
