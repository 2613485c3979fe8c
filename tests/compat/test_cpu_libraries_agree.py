"""What we say of processor libraries is what threadpoolctl, numpy and torch say of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Library, Presence, ProbeReport
from mlbackends.survey import survey

THREADPOOLS = """
import json, threadpoolctl
for name in ("numpy", "scipy.linalg", "sklearn.utils._openmp_helpers"):
    try:
        __import__(name)
    except ImportError:
        pass
print(json.dumps(threadpoolctl.threadpool_info()))
"""

NUMPY = """
import json, numpy
print(json.dumps(numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]))
"""

TORCH = """
import json, os, torch
from torch.backends import kleidiai, mkl, mkldnn, nnpack, openmp, quantized, xnnpack
print(json.dumps({
    "folder": os.path.join(os.path.dirname(torch.__file__), "lib"),
    "config": torch.__config__.show(),
    "threads": torch.get_num_threads(),
    "mkl": mkl.is_available(),
    "onednn": mkldnn.is_available(),
    "openmp": openmp.is_available(),
    "nnpack": nnpack.is_available(),
    "xnnpack": xnnpack.enabled,
    "qnnpack": "qnnpack" in quantized.supported_engines,
    "kleidiai": kleidiai.is_available(),
}))
"""


def told_by(code: str, package: str) -> Any:
    """Run Python code in a process of its own, where whatever it opens is let alone."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"{package} cannot be asked: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout.splitlines()[-1])


def found(name: str) -> tuple[ProbeReport, dict[str, Library]]:
    report = survey((name,), Host(), Presence.USABLE).probes[name]
    return report, {os.path.realpath(library.path): library for library in report.libraries}


def facts_of(report: ProbeReport, library: Library) -> dict[str, Any]:
    """Return what is told of one copy: those of the copy that speaks for the probe lie with it."""
    return {**report.facts, **library.facts}


def test_every_openblas_that_threadpoolctl_sees_is_ours_and_agrees() -> None:
    pools = told_by(THREADPOOLS, "threadpoolctl")
    seen = [pool for pool in pools if pool["internal_api"] == "openblas"]
    if not seen:
        pytest.skip("no package here brings an OpenBLAS")
    report, libraries = found("openblas")

    for pool in seen:
        library = libraries[os.path.realpath(pool["filepath"])]
        facts = facts_of(report, library)
        assert library.presence is Presence.USABLE
        assert library.version == pool["version"]
        assert facts["architecture"] == pool["architecture"]
        assert facts["threading"] == pool["threading_layer"]
        assert facts["threads"] == pool["num_threads"]
        assert facts.get("symbol_prefix", "") == ("scipy_" if "scipy" in pool["prefix"] else "")


def test_every_openmp_runtime_that_threadpoolctl_sees_is_ours_and_agrees() -> None:
    pools = told_by(THREADPOOLS, "threadpoolctl")
    seen = [pool for pool in pools if pool["user_api"] == "openmp"]
    if not seen:
        pytest.skip("no package here brings an OpenMP runtime that threadpoolctl sees")
    report, libraries = found("openmp")

    for pool in seen:
        library = libraries[os.path.realpath(pool["filepath"])]
        facts = facts_of(report, library)
        assert library.presence is Presence.USABLE
        assert facts["max_threads"] == pool["num_threads"]
        families = {"libgomp": "gnu", "libiomp": "intel", "libomp": "llvm"}
        assert facts["runtime"] == families[pool["prefix"]]


def test_the_openblas_of_numpy_has_the_version_that_numpy_was_built_with() -> None:
    blas = told_by(NUMPY, "numpy")
    if "openblas" not in blas["name"]:
        pytest.skip(f"this numpy was built with {blas['name']}")
    _, libraries = found("openblas")

    versions = [one.version for one in libraries.values() if one.owner.startswith("numpy ")]
    # Where there are two numpys on the path, the first is imported.
    assert versions[:1] == [blas["version"]]


@pytest.mark.torch
@pytest.mark.slow
def test_what_torch_has_built_in_is_what_we_find_inside_it() -> None:
    told = told_by(TORCH, "torch")

    def inside(name: str) -> tuple[dict[str, Any], Library | None]:
        report, libraries = found(name)
        ours = [
            library
            for path, library in libraries.items()
            if path.startswith(os.path.realpath(told["folder"]) + os.sep)
        ]
        return (facts_of(report, ours[0]), ours[0]) if ours else ({}, None)

    for name in ("mkl", "onednn", "openmp", "nnpack", "qnnpack", "xnnpack", "kleidiai"):
        _, library = inside(name)
        # nnpack is in the file and asks the processor; the others are in it or not.
        there = library is not None and (name != "nnpack" or library.presence is Presence.USABLE)
        assert there is told[name], name

    facts, library = inside("mkl")
    if library is not None:
        assert facts["version_text"] in told["config"]
        assert library.presence is Presence.USABLE
    facts, library = inside("onednn")
    if library is not None and library.version:
        pattern = rf"MKL-DNN v{re.escape(library.version)} \(Git Hash {facts['commit']}\)"
        assert re.search(pattern, told["config"])
    facts, library = inside("openmp")
    if library is not None:
        assert facts["max_threads"] == told["threads"]
