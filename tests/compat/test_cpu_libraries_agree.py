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

RUNTIME = """
import json, sys, types
import numpy
from numpy.lib import _utils_impl as utils
pages = []
sys.modules["pprint"] = types.SimpleNamespace(pprint=pages.append)
numpy.show_runtime()
print(json.dumps(next(page["simd_extensions"] for page in pages[0] if "simd_extensions" in page)))
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
    "parallel": torch.__config__.parallel_info(),
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
        families = {"libgomp": "gnu", "libiomp": "intel", "libomp": "llvm", "vcomp": "microsoft"}
        assert facts["runtime"] == families[pool["prefix"]]


def test_the_openblas_of_numpy_has_the_version_that_numpy_was_built_with() -> None:
    blas = told_by(NUMPY, "numpy")
    if "openblas" not in blas["name"]:
        pytest.skip(f"this numpy was built with {blas['name']}")
    _, libraries = found("openblas")

    versions = [library.version for library in libraries.values() if library.owner.startswith("numpy ")]
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
    assert found("torch")[0].facts["threads"] == told["threads"]


def taken() -> dict[str, dict[str, Any]]:
    """Return what the probe `uses` says that each package takes, by the file that it lies in."""
    facts = survey(("uses",), Host(), Presence.USABLE).probes["uses"].facts
    return {
        os.path.realpath(row["path"]): row
        for use in facts.values()
        if isinstance(use, dict)
        for row in use.values()
        if isinstance(row, dict) and row["library"] != "onednn"
    }


def test_the_table_of_uses_says_what_threadpoolctl_says() -> None:
    pools = told_by(THREADPOOLS, "threadpoolctl")
    rows = taken()

    seen = {os.path.realpath(pool["filepath"]): pool for pool in pools}
    if not seen:
        pytest.skip("no package here brings what threadpoolctl sees")
    assert seen.keys() <= rows.keys()
    for path, pool in seen.items():
        row = rows[path]
        assert row["threads"] == pool["num_threads"]
        assert row["library"] == pool["internal_api"]
        if pool["user_api"] == "blas":
            assert (row["version"], row["core"]) == (pool["version"], pool["architecture"])
            assert row["runtime"] == pool["threading_layer"]


def test_the_kernels_that_files_tell_are_those_that_openblas_chooses() -> None:
    files = survey(("openblas",), Host(), Presence.FOUND).probes["openblas"]
    opened = survey(("openblas",), Host(), Presence.LOADABLE).probes["openblas"]

    chosen = {
        library.path: facts_of(opened, library)["architecture"]
        for library in opened.libraries
        if library.wins
    }
    told = {library.path: library.facts.get("architecture") for library in files.libraries if library.wins}
    if not any(told.values()):
        pytest.skip("no OpenBLAS here whose choice follows from files")
    assert {path: core for path, core in told.items() if core} == {
        path: chosen[path] for path, core in told.items() if core
    }


def test_the_instruction_sets_of_numpy_are_those_of_show_runtime() -> None:
    extensions = told_by(RUNTIME, "numpy")
    facts = survey(("numpy",), Host(), computing=("numpy",)).probes["numpy"].facts

    for name in ("baseline", "found", "not_found"):
        assert facts.get(f"simd_{name}", []) == extensions[name], name


@pytest.mark.torch
@pytest.mark.slow
def test_what_torch_takes_is_what_its_own_configuration_says() -> None:
    told = told_by(TORCH, "torch")
    probes = survey(("uses", "torch"), Host(), computing=("torch",)).probes
    use: Any = probes["uses"].facts["torch"]
    facts: Any = probes["torch"].facts

    assert probes["torch"].presence is Presence.USABLE
    assert "cpu" in facts["computed_on"]
    for kind, marker in (("blas", "Math Kernel Library Version "), ("onednn", "MKL-DNN v")):
        if marker in told["config"]:
            assert f"{marker}{use[kind]['version']}" in told["config"]
    assert f"at::get_num_threads() : {use['openmp']['threads']}" in told["parallel"]
    assert f"BLAS_INFO={facts['blas']}" in told["config"]
    assert f"- {facts['compiler']}" in told["config"]
    assert f"OpenMP {facts['openmp_date']}" in told["config"]
    assert f"CPU capability usage: {facts['cpu_capability']}" in told["config"]
    for name, value in facts["build_settings"].items():
        assert f"{name}={value}" in told["config"]
