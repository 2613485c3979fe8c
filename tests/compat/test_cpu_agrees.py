"""What the CPU and memory probes say of this machine, beside what other tools say of it."""

from __future__ import annotations

import ctypes
import glob
import json
import mmap
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

import psutil
import pytest

from mlbackends.base.quantities import format_cpu_list, parse_cpu_list
from mlbackends.base.tables import table
from mlbackends.host.cpu.features import hardware_capability, x86_64_level
from mlbackends.host.host import Host
from mlbackends.host.windows import cpu as windows
from mlbackends.host.windows.processors import CPUID, XGETBV, cpuid_leaves
from mlbackends_probes import cpu, memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tools are those of Linux")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    return cpu.find(Host(environment=environment)).facts


def output(*command: str) -> str:
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)} says nothing here")
    return done.stdout


@pytest.fixture(scope="module")
def lscpu() -> dict[str, str]:
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    rows: dict[str, str] = {}
    todo = list(json.loads(output("lscpu", "-J"))["lscpu"])
    while todo:
        row = todo.pop()
        rows[row["field"].rstrip(":")] = row.get("data") or ""
        todo += row.get("children", [])
    return rows


@pytest.mark.parametrize(
    ("field", "fact"),
    [
        ("Vendor ID", "vendor_id"),
        ("CPU family", "family"),
        ("Model", "model"),
        ("Stepping", "stepping"),
        ("CPU(s)", "threads"),
        ("Socket(s)", "sockets"),
        ("Thread(s) per core", "threads_per_core"),
    ],
)
def test_lscpu_agrees(lscpu: dict[str, str], facts: dict[str, Any], field: str, fact: str) -> None:
    if facts["architecture"] != "x86_64":
        pytest.skip("lscpu words these its own way on other processors")
    if lscpu.get(field, "-") == "-" or (field == "CPU(s)" and facts["offline_cpus"]):
        pytest.skip(f"lscpu does not tell {field}")
    assert str(facts[fact]) == lscpu[field]


def test_lscpu_names_the_same_model(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    if facts.get("model_name_source") != "kernel":
        pytest.skip("the kernel gives no name here")
    assert facts["model_name"] == " ".join(lscpu["Model name"].split())


def test_lscpu_counts_the_same_cores(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    if not lscpu.get("Core(s) per socket", "").isdecimal() or facts["offline_cpus"]:
        pytest.skip("lscpu does not tell cores, or rounds because some are off")
    assert facts["cores"] == int(lscpu["Core(s) per socket"]) * int(lscpu["Socket(s)"])


def test_lscpu_has_the_same_cpus_on(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    assert facts["online_cpus"] == format_cpu_list(parse_cpu_list(lscpu["On-line CPU(s) list"]))


def test_lscpu_lists_the_same_flags(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    if not lscpu.get("Flags"):
        pytest.skip("lscpu lists no flags")
    assert facts["features"] == sorted(set(lscpu["Flags"].split()))


def test_lscpu_has_the_same_nodes(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    nodes = facts.get("numa_nodes", [])
    told = {
        field.removeprefix("NUMA node").removesuffix(" CPU(s)"): cpus
        for field, cpus in lscpu.items()
        if field.startswith("NUMA node") and field.endswith(" CPU(s)")
    }
    ours = {str(node["node"]): node["cpus"] for node in nodes}
    assert ours == {node: format_cpu_list(parse_cpu_list(cpus)) for node, cpus in told.items()}


def test_lscpu_measures_the_same_caches(facts: dict[str, Any]) -> None:
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    told = json.loads(output("lscpu", "-B", "-C", "-J"))["caches"]
    if facts.get("kinds"):
        pytest.skip("lscpu adds up the caches of different kinds of core")
    letters = {"data": "d", "instruction": "i", "unified": ""}
    ours = {
        f"L{cache['level']}{letters[cache['type']]}": (
            cache["size_bytes"],
            cache["size_bytes"] * cache["instances"],
            cache.get("ways"),
            cache.get("line_bytes"),
        )
        for cache in facts.get("caches", [])
    }
    theirs = {
        cache["name"]: (
            int(cache["one-size"]),
            int(cache["all-size"]),
            int(cache["ways"]) if cache.get("ways") else None,
            int(cache["coherency-size"]) if cache.get("coherency-size") else None,
        )
        for cache in told
    }
    assert ours == theirs


def test_lscpu_sees_the_same_vulnerabilities(lscpu: dict[str, str], facts: dict[str, Any]) -> None:
    affected = {
        field.removeprefix("Vulnerability ").lower().replace(" ", "_").replace("-", "_")
        for field, state in lscpu.items()
        if field.startswith("Vulnerability ") and state != "Not affected"
    }
    assert affected == set(facts.get("mitigations", {}))


def test_the_dynamic_loader_reaches_the_same_level(facts: dict[str, Any]) -> None:
    if facts["architecture"] != "x86_64":
        pytest.skip("levels are those of x86-64")
    loaders = glob.glob("/lib64/ld-linux-x86-64.so.2")
    told = output(loaders[0], "--help") if loaders else ""
    if "x86-64-v2" not in told:
        pytest.skip("this loader lists no levels (glibc before 2.33, or musl)")
    for level in ("x86-64-v4", "x86-64-v3", "x86-64-v2"):
        supported = f"{level} (supported" in told
        assert (facts["x86_64_level"] >= level) is supported, level


NUMPY_NAMES = {
    "SSE": "sse", "SSE2": "sse2", "SSE3": "pni", "SSSE3": "ssse3", "SSE41": "sse4_1",
    "SSE42": "sse4_2", "POPCNT": "popcnt", "AVX": "avx", "F16C": "f16c", "FMA3": "fma",
    "AVX2": "avx2", "AVX512F": "avx512f", "AVX512CD": "avx512cd", "AVX512VL": "avx512vl",
    "AVX512BW": "avx512bw", "AVX512DQ": "avx512dq", "AVX512VNNI": "avx512_vnni",
    "AVX512IFMA": "avx512ifma", "AVX512VBMI": "avx512vbmi", "AVX512VBMI2": "avx512_vbmi2",
    "AVX512BITALG": "avx512_bitalg", "AVX512FP16": "avx512_fp16", "NEON": "asimd",
    "ASIMDHP": "asimdhp", "ASIMDDP": "asimddp", "SVE": "sve", "VSX": "vsx", "VX": "vx",
    "VXE": "vxe", "VXE2": "vxe2",
}  # fmt: skip


def test_numpy_sees_the_same_features(facts: dict[str, Any]) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    told = numpy._core._multiarray_umath.__cpu_features__
    features = set(facts["features"])
    compared = {name for name in NUMPY_NAMES if name in told}
    ours = {name for name in compared if NUMPY_NAMES[name] in features}
    groups = {"x86_64": "SSE", "aarch64": "NEON"}
    assert groups.get(facts["architecture"], "") in {"", *compared}
    assert ours == {name for name in compared if told[name]}


def test_psutil_counts_the_same(facts: dict[str, Any]) -> None:
    assert facts["threads"] == psutil.cpu_count()
    cores = psutil.cpu_count(logical=False)
    if cores is not None and "cores" in facts:
        assert facts["cores"] == cores


def test_psutil_measures_the_same_memory() -> None:
    before = psutil.virtual_memory().total
    facts = memory.find(Host()).facts
    after = psutil.virtual_memory().total
    if before != after:
        pytest.skip("memory is being plugged in or out just now")
    assert facts["total_bytes"] == before
    assert facts["swap_total_bytes"] == psutil.swap_memory().total


def test_the_c_library_has_the_same_page_size_and_limit() -> None:
    import resource

    facts = memory.find(Host()).facts
    assert facts["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert facts["locked_memory_unlimited"] is (soft == resource.RLIM_INFINITY)
    if soft != resource.RLIM_INFINITY:
        assert facts["locked_memory_limit_bytes"] == soft


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is of x86")
def test_cpuid_comes_to_what_the_kernel_says(facts: dict[str, Any]) -> None:
    kept = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # Linux passes the first argument in rdi.
    codes = [bytes.fromhex(code.replace("4989c8", "4989f8")) for code in (CPUID, XGETBV)]
    kept.write(b"".join(codes))
    at = ctypes.addressof(ctypes.c_char.from_buffer(kept))
    registers = (ctypes.c_uint32 * 4)()
    function = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))

    def read(leaf: int, subleaf: int) -> list[int]:
        registers[:] = [leaf, subleaf, 0, 0]
        function(at)(registers)
        return list(registers)

    leaves = cpuid_leaves(read)
    function(at + len(codes[0]))(registers)
    leaves["xcr0"] = list(registers)
    features = frozenset(windows.features_of_cpuid(leaves))
    # What the kernel leaves out by its own settings is no error of either.
    assert set(facts["features"]) & windows_names() <= features
    assert x86_64_level(features) == facts["x86_64_level"]
    assert hardware_capability("x86_64", features, None, "linux") == facts["hardware_capability"]


def windows_names() -> set[str]:
    """Return every feature that the table has a bit for."""
    rows = table("host/windows/cpuid")
    return {
        name
        for leaf, registers in rows.items()
        if leaf[0].isdigit() or leaf == "d.1"
        for names in registers.values()
        for name in names.split()
    }


TORCH_NAMES = {
    "avx": "avx", "avx2": "avx2", "fma3": "fma", "f16c": "f16c", "sse3": "pni", "ssse3": "ssse3",
    "sse4_1": "sse4_1", "sse4_2": "sse4_2", "popcnt": "popcnt", "lzcnt": "abm", "bmi": "bmi1",
    "bmi2": "bmi2", "avx_vnni": "avx_vnni", "avx512_f": "avx512f", "avx512_bw": "avx512bw",
    "avx512_cd": "avx512cd", "avx512_dq": "avx512dq", "avx512_vl": "avx512vl",
    "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "avx512_fp16": "avx512_fp16",
    "amx_tile": "amx_tile", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16", "clwb": "clwb",
}  # fmt: skip
ASK_TORCH = """
import json, warnings
warnings.simplefilter("ignore")
import torch
get = getattr(torch.cpu, "get_capabilities", dict)
print(json.dumps([torch.backends.cpu.get_cpu_capability(), dict(get())]))
"""


def ask_torch(override: str | None = None) -> tuple[str, dict[str, Any]]:
    """Ask a torch: that of the interpreter which MLBACKENDS_TORCH_PYTHON names, or of this one."""
    python = os.environ.get("MLBACKENDS_TORCH_PYTHON", "")
    if not python:
        pytest.importorskip("torch", reason="torch is not installed")
        python = sys.executable
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    if override is not None:
        environment["ATEN_CPU_CAPABILITY"] = override
    done = subprocess.run(
        [python, "-c", ASK_TORCH], capture_output=True, text=True, env=environment, check=True
    )
    capability, capabilities = json.loads(done.stdout.splitlines()[-1])
    return capability, capabilities


@pytest.mark.torch
def test_torch_sees_the_same_features(facts: dict[str, Any]) -> None:
    capability, capabilities = ask_torch()
    assert facts["hardware_capability"] == capability
    if not capabilities or facts["architecture"] != "x86_64":
        pytest.skip("this torch tells no single features")
    features = set(facts["features"])
    compared = {name for name in TORCH_NAMES if name in capabilities}
    ours = {name for name in compared if TORCH_NAMES[name] in features}
    assert ours == {name for name in compared if capabilities[name]}
    assert facts["threads"] == capabilities["num_logical_cores"]
    assert facts["cores"] == capabilities["num_physical_cores"]
    first = {(cache["level"], cache["type"]): cache["size_bytes"] for cache in facts["caches"]}
    assert first[1, "data"] == capabilities["l1d_cache_size"]
    assert first[2, "unified"] == capabilities["l2_cache_size"]


@pytest.mark.torch
@pytest.mark.parametrize("value", ["default", "avx2", "AVX2", "", "sve256", "bogus"])
def test_torch_obeys_the_variable_as_we_say(value: str) -> None:
    environment = dict(os.environ) | {"ATEN_CPU_CAPABILITY": value}
    assert cpu.find(Host(environment=environment)).facts["capability"] == ask_torch(value)[0]
