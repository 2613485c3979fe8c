"""Runtimes of models, and stand-ins that do what they do when a library is missing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary, Machine
    from tests.probes.conftest import Asked

    from mlbackends.model.records import ProbeReport

ROWS = {
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "ctranslate2": ("ctranslate2", "ctranslate2"),
    "faiss": ("faiss_gpu_cu12", "faiss"),
    "hf_kernels": ("kernels", "kernels"),
    "llama_cpp": ("llama_cpp_python", "llama_cpp"),
    "openvino": ("openvino", "openvino"),
    "sgl_kernel": ("sgl_kernel", "sgl_kernel"),
    "vllm": ("vllm", "vllm"),
}


@pytest.mark.parametrize("probe", ROWS)
def test_a_package_is_found_by_its_distribution_and_imported_by_its_module(
    machine: Machine, probe: str
) -> None:
    name, module = ROWS[probe]
    files = {
        f"site/{name}-1.2.dist-info/METADATA": f"Name: {name}\n\n",
        f"site/{module}/__init__.py": "",
    }

    finding = registry.load(registry.PROBES, probe).find(machine(files))

    assert (finding.version, finding.imports) == ("1.2", (module,))
    assert finding.facts["location"] == f"/site/{module}"


def test_the_cache_of_kernels_is_listed_with_its_builds(machine: Machine) -> None:
    cache = "home/me/.cache/huggingface/hub"
    activation = f"{cache}/kernels--kernels-community--activation/snapshots/1f2/build"
    older = f"{cache}/models--kernels-community--rotary/snapshots/9a/build"
    files = {
        "site/kernels-0.17.2.dist-info/METADATA": "Name: kernels\n\n",
        "site/kernels/__init__.py": "",
        f"{activation}/torch215-cxx11-cu132-x86_64-linux/_ops.so": "",
        f"{activation}/torch214-cxx11-cu130-x86_64-linux/_ops.so": "",
        f"{older}/torch27-cxx11-cu126-x86_64-linux/_ops.so": "",
        f"{cache}/models--google--gemma/snapshots/1/config.json": "",
    }

    facts = registry.load(registry.PROBES, "hf_kernels").find(machine(files, HOME="/home/me")).facts

    assert facts["cache"] == f"/{cache}"
    assert facts["kernels"] == {
        "kernels-community/activation": [
            "torch214-cxx11-cu130-x86_64-linux",
            "torch215-cxx11-cu132-x86_64-linux",
        ],
        "kernels-community/rotary": ["torch27-cxx11-cu126-x86_64-linux"],
    }


def test_ggml_reports_its_version_and_the_backends_beside_it(
    asked: Asked, fake_library: FakeLibrary, tmp_path: Path
) -> None:
    source = 'const char *ggml_version(void) { return "0.9.4"; }'
    built = fake_library("ggml", "libggml-base.so.0", source=source).read_bytes()
    for name in ("libggml-base.so.0", "libggml-cuda.so", "libggml-cpu-haswell.so", "libggml.so"):
        (tmp_path / name).write_bytes(built)

    report, library = asked("ggml", tmp_path / "libggml-base.so.0")

    assert report.presence is Presence.LOADABLE
    assert (library.version, library.facts["backends"]) == ("0.9.4", ["cpu", "cuda"])


def ran(folder: Path, probe: str, sources: dict[str, str]) -> ProbeReport:
    """Return the report of a probe in an interpreter that imports these files."""
    for path, source in sources.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source)
    host = Host(
        python={"executable": sys.executable, "path": [str(folder)]},
        environment={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]},
    )
    return survey((probe,), host, Presence.USABLE).probes[probe]


ONNXRUNTIME = """
import os

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
loaded = {loaded}
TENSORRT = "TensorrtExecutionProvider"

def get_available_providers():
    return [TENSORRT, CUDA, CPU] if loaded else [CUDA, CPU]

def preload_dlls():
    global loaded
    loaded = {preloads}

class Row(list):
    def tolist(self):
        return list(self)

class InferenceSession:
    def __init__(self, model, providers):
        assert model[:2] == bytes([8, 8]) and b"Identity" in model
        self.used = [*providers, CPU]
        if TENSORRT in providers:
            self.used = [CPU]
            os.write(2, b"libnvinfer.so.10: cannot open shared object file: No such file or directory\\n")
        if CUDA in providers and not loaded:
            self.used = [CPU]
            os.write(2, b"\\x1b[1;31m[E:onnxruntime] Failed to load library "
                b"libonnxruntime_providers_cuda.so with error: "
                b"libcublasLt.so.13: cannot open shared object file: No such file or directory\\x1b[m\\n")
    def get_providers(self):
        return self.used
    def run(self, outputs, inputs):
        return [Row([1.0])]
"""
CUBLAS = "libcublasLt.so.13: cannot open shared object file: No such file or directory"
NUMPY = "float32 = 'f'\ndef ones(shape, kind): return [1.0]\n"


@pytest.mark.parametrize(
    ("preloads", "verdict"),
    [(False, CUBLAS), (True, f"{CUBLAS}; it starts after onnxruntime.preload_dlls()")],
)
def test_a_provider_of_onnxruntime_that_does_not_start_is_not_claimed(
    tmp_path: Path, *, preloads: bool, verdict: str
) -> None:
    sources = {
        "onnxruntime/__init__.py": ONNXRUNTIME.format(preloads=preloads, loaded=False),
        "numpy/__init__.py": NUMPY,
        "onnxruntime/capi/libonnxruntime_providers_cuda.so": "",
    }

    report = ran(tmp_path, "onnxruntime", sources)

    assert report.presence is Presence.USABLE
    assert report.facts["provider_files"] == ["cuda"]
    assert report.facts["providers"] == ["cpu"]
    assert report.facts["accelerators"] == {"cuda": verdict}
    assert [warning.code for warning in report.warnings] == ["falls-back"]


def test_cuda_without_tensorrt_does_not_fall_back_to_the_cpu(tmp_path: Path) -> None:
    sources = {
        "onnxruntime/__init__.py": ONNXRUNTIME.format(preloads=True, loaded=True),
        "numpy/__init__.py": NUMPY,
    }

    report = ran(tmp_path, "onnxruntime", sources)

    assert report.facts["providers"] == ["cpu", "cuda"]
    assert "libnvinfer.so.10" in str(report.facts["accelerators"])
    assert report.warnings == ()


def test_operators_of_vllm_that_do_not_load_are_an_import_that_fails(tmp_path: Path) -> None:
    words = "libcudart.so.12: cannot open shared object file: No such file or directory"
    sources = {
        "torch/__init__.py": "",
        "vllm/__init__.py": "",
        "vllm/_C.py": f"raise ImportError({words!r})",
    }

    report = ran(tmp_path, "vllm", sources)

    assert report.reasons[0].code == "import-failed"
    assert report.facts["imports"] == {"vllm": f"import vllm fails: ImportError: {words}"}


def test_the_library_of_bitsandbytes_that_fails_at_its_first_use_is_a_fall_back(
    tmp_path: Path,
) -> None:
    torch = "class cuda:\n    is_available = staticmethod(lambda: True)\nclass version: hip = None\n"
    extension = "class lib: error_msg = 'libcusparse.so.12: cannot open shared object file'\n"

    report = ran(
        tmp_path,
        "bitsandbytes",
        {
            "torch/__init__.py": torch,
            "bitsandbytes/__init__.py": "",
            "bitsandbytes/cextension.py": extension,
        },
    )

    assert report.facts["accelerators"] == {"cuda": "libcusparse.so.12: cannot open shared object file"}


def test_a_library_that_ctranslate2_opens_by_name_is_opened(tmp_path: Path) -> None:
    source = (
        "def get_supported_compute_types(device): return {'int8'}\ndef get_cuda_device_count(): return 1\n"
    )

    report = ran(
        tmp_path,
        "ctranslate2",
        {
            "ctranslate2/__init__.py": source,
            "ctranslate2.libs/libctranslate2-1.so.4": "\0libcublas.so.9\0libx\0",
        },
    )

    assert str(report.facts["accelerators"]).startswith("{'cuda': 'libcublas.so.9: cannot open")
    assert report.presence is Presence.LOADABLE


def test_a_backend_of_llama_cpp_that_does_not_open_is_a_fall_back(tmp_path: Path) -> None:
    report = ran(
        tmp_path,
        "llama_cpp",
        {
            "llama_cpp/__init__.py": "def llama_supports_gpu_offload(): return False\n",
            "llama_cpp/lib/libggml-cuda.so": "cut",
            "llama_cpp/lib/libggml-cpu.so": "cut",
        },
    )

    assert report.facts["offloads"] is False
    assert "libggml-cuda.so: file too short" in str(report.facts["accelerators"])


def test_a_jax_plugin_that_does_not_start_is_a_fall_back(tmp_path: Path) -> None:
    info = "jax_cuda13_plugin-0.10.2.dist-info"
    sources = {
        "jax/__init__.py": "def devices(kind): raise RuntimeError('Unable to load cuSPARSE')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: jax-cuda13-plugin\nVersion: 0.10.2\n",
        f"{info}/entry_points.txt": "[jax_plugins]\nxla_cuda13 = jax_plugins.xla_cuda13\n",
    }

    report = ran(tmp_path, "jax", sources)

    assert report.facts["accelerators"] == {"cuda": "RuntimeError: Unable to load cuSPARSE"}


def test_a_tpu_is_not_taken_from_another_process_where_jax_is_not_named(tmp_path: Path) -> None:
    info = "libtpu-0.0.30.dist-info"
    sources = {
        "jax/__init__.py": "def devices(kind): raise RuntimeError('The TPU is already in use')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: libtpu\nVersion: 0.0.30\n",
        f"{info}/entry_points.txt": "[jax_plugins]\nlibtpu = libtpu.plugin\n",
    }

    report = ran(tmp_path, "jax", sources)

    assert report.presence is Presence.LOADABLE
    assert "accelerators" not in report.facts and report.warnings == ()


def test_a_tensorflow_without_its_gpu_is_a_fall_back(tmp_path: Path) -> None:
    source = (
        "import os\n"
        "class test:\n"
        "    is_built_with_cuda = staticmethod(lambda: True)\n"
        "class config:\n"
        "    @staticmethod\n"
        "    def list_physical_devices(kind):\n"
        "        os.write(2, b'W gpu_device.cc:2343] Cannot dlopen some GPU libraries.\\n')\n"
        "        return []\n"
    )

    report = ran(tmp_path, "tensorflow", {"tensorflow/__init__.py": source})

    assert report.facts["accelerators"] == {"gpu": "Cannot dlopen some GPU libraries."}
