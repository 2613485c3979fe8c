"""Fail where a test was skipped in every run: ``check_skips.py [--missing FILE] RUN.xml ...``.

A test that never runs anywhere is no test. The files are what ``pytest --junitxml`` writes, where a
module that was skipped while it was collected stands once, under its own name. What needs something
that no run can have is named in NEEDS_MORE, with what it needs; what another machine would run, in MACHINES.
The file of ``--missing`` has words, one a line, that tests say of packages that could not be had this time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree as ET  # what pytest wrote a moment ago

NEEDS_MORE = {
    "tests": ("needs Windows", "Windows, which .ci/systems has under Wine"),
    "tests.cli.test_sdpa_bench": ("needs a font", "a font"),
    "tests.compat.test_clusters": (
        "",
        "Slurm, NHC, Nagios, Icinga, Prometheus, and schemas of 108 MB",
    ),
    "tests.compat.test_conform": ("is not installed", "jax, openvino, onnxruntime and tensorflow"),
    "tests.compat.test_cuda_wheels": ("nvidia-cudnn-cu13", "a wheel of half a gigabyte"),
    "tests.compat.test_engines_agree": (
        "",
        "vLLM, SGLang, Transformer Engine and torch, wheels of half a gigabyte, transformers and diffusers",
    ),
    "tests.compat.test_known_wrong": ("is not installed", "jax, openvino, onnxruntime, tensorflow and mlx"),
    "tests.compat.test_run_cpu_agrees": ("an older torch", "torch 2.15, of .ci/systems torch-2.15"),
    "tests.compat.test_sdpa_onednn": ("a wheel of", "two wheels that bring oneDNN, 234 MB"),
    "tests.compat.test_trace_mpi": ("mpirun is not here", "a wheel of MPI, 37 MB"),
    "tests.compat.test_trace_wheels": ("wheel", "wheels of oneDNN and MKL, 300 MB"),
    "tests.compat.test_verbose_agree": ("is installed", "wheels of oneDNN and MKL, 300 MB"),
    "tests.gpu": ("", "a GPU"),
    "tests.kernels.attention_cuda": ("is not installed", "NVRTC, which .ci/systems nvrtc installs"),
    "tests.kernels.hub": ("could not import", "kernels and transformers"),
    "tests.kernels.peers": ("could not import", "jax, and libraries that need CUDA"),
    "tests.kernels.peers.test_graphs_program": ("is not installed", "openvino and onnxruntime"),
    "tests.probes.test_cluster_nodes": ("needs rpmbuild", "Debian's package rpm"),
    "tests.probes.test_vulkan": ("Debian's", "packages that .ci/systems vendors unpacks"),
    "tests.kernels.native.test_emulated": (
        "EMULATE",
        "what .ci/systems emulated-attention installs",
    ),
    "tests.systems.test_fleet_engines": ("ENGINES", "what .ci/systems engines installs"),
    "tests.systems.test_kubernetes": ("KUBERNETES", "what .ci/systems kubernetes compiles"),
    "tests.systems.test_vendors": ("VENDORS", "drivers that .ci/systems vendors unpacks"),
}

#: What tests say of the machine that they ran on: another one runs them.
MACHINES = (
    "has no name in archspec", "lscpu does not tell", "lscpu words these", "lscpu lists no",
    "lscpu adds up", "says nothing here", "the kernel gives no name", "memory is being plugged",
    "tells no single features", "levels are those of x86-64", "this loader lists no levels",
    "CPUID is of x86", "this nproc counts the quota", "the folders do not tell",
    "no file system of its own", "this system has ", "may not mount", "there is a GPU here",
    "needs two CPUs", "no OpenBLAS here whose choice",
)  # fmt: skip


def main(files: list[str], missing: tuple[str, ...] = ()) -> int:
    """Print what ran nowhere, and return how many tests that were; missing: words that excuse a test."""
    ran: set[tuple[str, str]] = set()
    skipped: dict[tuple[str, str], str] = {}
    for file in files:
        for case in ET.parse(file).iter("testcase"):
            test = case.get("classname", ""), case.get("name", "")
            reason = case.find("skipped")
            if reason is None:
                ran.add(test)
            else:
                whole_module = test[0] == ""  # then the message is the same for all of them
                skipped[test] = (reason.text or "") if whole_module else reason.get("message", "")
    modules = {module for module, _ in ran}
    never = {
        (module, name): reason
        for (module, name), reason in skipped.items()
        if (name not in modules if module == "" else (module, name) not in ran)
    }
    excused = [
        test
        for test, reason in never.items()
        if _needs_more(test[0] or test[1], reason) or any(words in reason for words in (*MACHINES, *missing))
    ]
    for test, why in sorted(never.items(), key=lambda item: (item[0] not in excused, item[0])):
        word = "excused" if test in excused else "never runs"
        print(f"{word}: {'.'.join(filter(None, test))}: {why}")
    print(f"{len(ran)} tests ran in one of {len(files)} runs")
    return len(never) - len(excused)


def _needs_more(module: str, reason: str) -> bool:
    return any(module.startswith(name) and words in reason for name, (words, _) in NEEDS_MORE.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--missing", type=Path)
    parser.add_argument("runs", nargs="+")
    asked = parser.parse_args()
    words = asked.missing.read_text(encoding="utf-8").splitlines() if asked.missing else ()
    sys.exit(bool(main(asked.runs, tuple(words))))
