"""What holds for every probe that reads Python packages, whatever it finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from mlbackends.base import registry
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Finding

if TYPE_CHECKING:
    from pathlib import Path

PROBES = (
    "cupy",
    "cutlass",
    "flash_attention",
    "jax",
    "numpy",
    "onnxruntime",
    "opt_einsum",
    "scipy",
    "tensorflow",
    "torch",
    "transformer_engine",
    "triton",
    "xformers",
)
DISTRIBUTIONS = (
    "cupy_cuda12x-13.6.0",
    "nvidia_cutlass_dsl-4.8.1",
    "flash_attn-2.8.3+cu12torch2.8",
    "flashinfer_python-0.7.2",
    "jax-0.10.2",
    "jax_cuda13_plugin-0.10.2",
    "numpy-2.4.6",
    "onnxruntime-1.24.0",
    "opt_einsum-3.4.0",
    "scipy-1.17.1",
    "tensorflow-2.20.0",
    "torch-2.13.0",
    "transformer_engine-2.20.2",
    "transformer_engine_cu13-2.20.2",
    "triton-3.7.0",
    "xformers-0.0.35",
)
READ = (
    "cupy/_version.py",
    "flash_attn/__init__.py",
    "flash_attn_2_cuda.so",
    "flashinfer/__init__.py",
    "jax/__init__.py",
    "numpy/__config__.py",
    "numpy/version.py",
    "numpy/__init__.py",
    "onnxruntime/__init__.py",
    "onnxruntime/capi/build_and_package_info.py",
    "opt_einsum/_version.py",
    "scipy/__config__.py",
    "scipy/__init__.py",
    "scipy/version.py",
    "tensorflow/__init__.py",
    "tensorflow/python/platform/build_info.py",
    "torch/__init__.py",
    "torch/lib/libtorch_cpu.so",
    "torch/version.py",
    "transformer_engine/__init__.py",
    "triton/__init__.py",
    "triton/backends/nvidia/compiler.py",
    "xformers/__init__.py",
    "xformers/cpp_lib.json",
    "xformers/version.py",
)
GARBAGE = {
    "empty": b"",
    "binary": b"\0\xff\xfe\x80",
    "brackets": b"[{(" * 20_000,
    "digits": b"9" * 100_000,
    "half": b"__version__ = '\nRequires-Dist: numpy==\nRequires-Dist: ;;;\n",
}


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_every_file_never_raises(tmp_path: Path, name: str, kind: str) -> None:
    for folder in DISTRIBUTIONS:
        for file in ("METADATA", "RECORD", "direct_url.json", "entry_points.txt"):
            at = tmp_path / "root" / "site" / f"{folder}.dist-info" / file
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(GARBAGE[kind])
    for file in READ:
        at = tmp_path / "root" / "site" / file
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(GARBAGE[kind])
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))

    finding = registry.load("mlbackends_probes", name).find(Host(str(tmp_path)))

    assert isinstance(finding, Finding)
    msgspec.json.encode(finding)


@pytest.mark.parametrize("name", [*PROBES, "packages", "compilers"])
def test_a_machine_with_nothing_says_what_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "proc").mkdir()
    finding = registry.load("mlbackends_probes", name).find(Host(str(tmp_path)))

    assert finding.presence is None
    assert finding.libraries == ()
    assert [reason.code for reason in finding.reasons] == ["not-found"]
    assert finding.warnings == ()


@pytest.mark.parametrize("name", [*PROBES, "packages", "compilers"])
def test_every_fact_of_this_environment_is_declared(name: str) -> None:
    module = registry.load("mlbackends_probes", name)

    told = set(module.find(Host()).facts)

    assert told <= facts_of(name).keys()
