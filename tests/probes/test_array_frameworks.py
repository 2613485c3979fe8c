from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends_probes import packages

if TYPE_CHECKING:
    from tests.conftest import Machine

cupy, jax, onnxruntime, tensorflow = (
    registry.load(registry.PROBES, name) for name in ("cupy", "jax", "onnxruntime", "tensorflow")
)


GPU = "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n"
OLD_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release Build\n"


def installed(*names: str, **metadata: str) -> dict[str, str | bytes]:
    """Return the metadata of distributions such as "jax-0.10.2"; by keyword its METADATA's text."""
    return {
        f"site/{name}.dist-info/METADATA": metadata.get(name.partition("-")[0], "") + "\n\n" for name in names
    }


# ---- JAX -----------------------------------------------------------------------------------------

JAX: dict[str, str | bytes] = {"site/jax/__init__.py": ""}
ITS_JAXLIB = "Requires-Dist: jaxlib<=0.10.2,>=0.10.2"


def test_jax_tells_jaxlib_and_plugins(machine: Machine) -> None:
    names = ("jax-0.10.2", "jaxlib-0.10.2", "jax_cuda13_plugin-0.10.2", "jax_cuda13_pjrt-0.10.2")
    files = JAX | installed(*names, jax=ITS_JAXLIB)
    files["site/jax_cuda13_plugin-0.10.2.dist-info/entry_points.txt"] = (
        "[jax_plugins]\nxla_cuda13 = jax_plugins.xla_cuda13\n"
    )

    finding = jax.find(machine(files))

    assert finding.version == "0.10.2"
    assert finding.facts == {
        "distribution": "jax",
        "location": "/site/jax",
        "jaxlib_version": "0.10.2",
        "plugins": {"jax-cuda13-plugin": "0.10.2", "jax-cuda13-pjrt": "0.10.2"},
        "plugin_entry_points": {"xla_cuda13": "jax_plugins.xla_cuda13"},
    }
    assert finding.warnings == ()


@pytest.mark.parametrize(("others", "has"), [(["jaxlib-0.9.0"], {"installed": "0.9.0"}), ([], {})])
def test_a_jaxlib_that_jax_does_not_accept_is_an_unmet_requirement(
    machine: Machine, others: list[str], has: dict[str, str]
) -> None:
    files = JAX | installed("jax-0.10.2", *others, jax=ITS_JAXLIB)

    assert packages.find(machine(files)).facts["unmet"] == [
        {
            "package": "jax",
            "version": "0.10.2",
            "needs": "jaxlib",
            "wanted": "<=0.10.2,>=0.10.2",
            **has,
        }
    ]


def test_a_plugin_of_another_version_is_a_conflict(machine: Machine) -> None:
    names = ["jax-0.10.2", "jaxlib-0.10.2", "jax_cuda13_plugin-0.10.1"]

    (warning,) = jax.find(machine(JAX | installed(*names))).warnings

    assert warning.code == "conflict"
    assert warning.message == "jax-cuda13-plugin is 0.10.1, and jaxlib is 0.10.2"


@pytest.mark.parametrize(("others", "has"), [(["jax_cuda13_pjrt-0.10.1"], {"installed": "0.10.1"}), ([], {})])
def test_a_plugin_with_another_pjrt_is_an_unmet_requirement(
    machine: Machine, others: list[str], has: dict[str, str]
) -> None:
    files = JAX | installed("jax-0.10.2", "jax_cuda13_plugin-0.10.2", *others)
    needs = "Requires-Dist: jax-cuda13-pjrt==0.10.2\n\n"
    files["site/jax_cuda13_plugin-0.10.2.dist-info/METADATA"] = needs

    assert packages.find(machine(files)).facts["unmet"] == [
        {
            "package": "jax-cuda13-plugin",
            "version": "0.10.2",
            "needs": "jax-cuda13-pjrt",
            "wanted": "==0.10.2",
            **has,
        }
    ]


def test_a_plugin_release_of_its_own_goes_with_jaxlib(machine: Machine) -> None:
    names = (
        "jax-0.4.31",
        "jaxlib-0.4.31",
        "jax_cuda12_plugin-0.4.31.post1",
        "jax_cuda12_pjrt-0.4.31",
    )

    assert jax.find(machine(JAX | installed(*names))).warnings == ()


def test_plugins_for_two_majors_are_a_conflict(machine: Machine) -> None:
    names = ["jax-0.10.2", "jaxlib-0.10.2"]
    names += [f"jax_cuda{n}_{part}-0.10.2" for n in (12, 13) for part in ("plugin", "pjrt")]

    (warning,) = jax.find(machine(JAX | installed(*names))).warnings

    assert "plugins for CUDA 12 and 13" in warning.message


def test_jax_beside_a_gpu_wants_a_plugin(machine: Machine) -> None:
    files = JAX | installed("jax-0.10.2", "jaxlib-0.10.2")
    files["sys/bus/pci/devices/0000:65:00.0/uevent"] = GPU

    (warning,) = jax.find(machine(files)).warnings

    assert warning.code == "degraded"


def test_a_plugin_that_the_driver_does_not_run_is_a_warning(machine: Machine) -> None:
    names = ("jax-0.10.2", "jaxlib-0.10.2", "jax_cuda13_plugin-0.10.2", "jax_cuda13_pjrt-0.10.2")
    files = JAX | installed(*names) | {"proc/driver/nvidia/version": OLD_DRIVER}

    (warning,) = jax.find(machine(files)).warnings

    assert warning.code == "driver-too-old"
    assert warning.message.startswith("jax-cuda13-plugin needs driver 580")


# ---- TensorFlow ----------------------------------------------------------------------------------

BUILD_INFO = (
    "import collections\nbuild_info = collections.OrderedDict(["
    "('cpu_compiler', '/usr/lib/llvm-18/bin/clang'), "
    "('cuda_compute_capabilities', ['sm_60', 'sm_70', 'compute_90']), "
    "('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True), "
    "('is_rocm_build', False), ('is_tensorrt_build', False)])\n"
)
TENSORFLOW: dict[str, str | bytes] = {"site/tensorflow/__init__.py": ""}
AT = "site/tensorflow/python/platform/build_info.py"


def test_tensorflow_tells_its_build(machine: Machine) -> None:
    files = TENSORFLOW | installed("tensorflow-2.20.0", "keras-3.12.0") | {AT: BUILD_INFO}

    finding = tensorflow.find(machine(files))

    assert finding.version == "2.20.0"
    assert finding.facts == {
        "distribution": "tensorflow",
        "location": "/site/tensorflow",
        "is_cuda_build": True,
        "is_rocm_build": False,
        "is_tensorrt_build": False,
        "cuda_version": "12.5.1",
        "cudnn_version": "9",
        "compute_capabilities": ["sm_60", "sm_70", "compute_90"],
        "compiler": "/usr/lib/llvm-18/bin/clang",
        "keras_version": "3.12.0",
    }
    assert finding.warnings == ()


def test_a_cpu_build_of_tensorflow_beside_a_gpu_is_a_warning(machine: Machine) -> None:
    told = "build_info = {'is_cuda_build': False, 'is_rocm_build': False}\n"
    files = TENSORFLOW | installed("tensorflow_cpu-2.20.0") | {AT: told}
    files["sys/bus/pci/devices/0000:65:00.0/uevent"] = GPU

    finding = tensorflow.find(machine(files))

    assert finding.facts["distribution"] == "tensorflow-cpu"
    assert [(warning.code, warning.hint) for warning in finding.warnings] == [
        ("degraded", "uninstall tensorflow-cpu, then install tensorflow[and-cuda]")
    ]


def test_tensorflow_on_windows_is_but_tensorflow_intel(machine: Machine) -> None:
    names = ("tensorflow-2.18.0", "tensorflow_intel-2.18.0")
    files = TENSORFLOW | installed(*names, tensorflow="Requires-Dist: tensorflow-intel==2.18.0")

    assert tensorflow.find(machine(files)).warnings == ()


# ---- ONNX Runtime --------------------------------------------------------------------------------

RUNTIME: dict[str, str | bytes] = {
    "site/onnxruntime/__init__.py": "",
    "site/onnxruntime/capi/build_and_package_info.py": (
        "package_name = 'onnxruntime-gpu'\n__version__ = '1.24.0'\n"
        "cuda_version = '12.8'\ncudnn_version = '9'\n"
    ),
    "site/onnxruntime/capi/libonnxruntime_providers_cuda.so": "",
    "site/onnxruntime/capi/libonnxruntime_providers_tensorrt.so": "",
    "site/onnxruntime/capi/libonnxruntime_providers_shared.so": "",
}


def test_onnxruntime_tells_its_providers(machine: Machine) -> None:
    finding = onnxruntime.find(machine(RUNTIME | installed("onnxruntime_gpu-1.24.0")))

    assert finding.version == "1.24.0"
    assert finding.facts == {
        "distribution": "onnxruntime-gpu",
        "location": "/site/onnxruntime",
        "built_as": "onnxruntime-gpu",
        "provider_files": ["cuda", "tensorrt"],
        "cuda_version": "12.8",
        "cudnn_version": "9",
    }


# ---- CuPy ----------------------------------------------------------------------------------------

CUPY: dict[str, str | bytes] = {
    "site/cupy/__init__.py": "",
    "site/cupy/_version.py": "__version__ = '13.6.0'\n",
}


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("cupy_cuda12x", ("cuda_version", "12.x")),
        ("cupy_cuda13x", ("cuda_version", "13.x")),
        ("cupy_cuda112", ("cuda_version", "11.2")),
        ("cupy_rocm_5_0", ("rocm_version", "5.0")),
    ],
)
def test_a_flavour_of_cupy_names_what_it_is_for(machine: Machine, name: str, fact: tuple[str, str]) -> None:
    finding = cupy.find(machine(CUPY | installed(f"{name}-13.6.0")))

    assert finding.version == "13.6.0"
    assert finding.facts[fact[0]] == fact[1]


def test_cupy_for_a_newer_cuda_than_the_driver_is_a_warning(machine: Machine) -> None:
    files = CUPY | installed("cupy_cuda13x-13.6.0") | {"proc/driver/nvidia/version": OLD_DRIVER}

    (warning,) = cupy.find(machine(files)).warnings

    assert warning.code == "driver-too-old"


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.8; extra == 'with-cuda'", "9.8"),
        ("Requires-Dist: nvidia-cudnn-cu12; extra == 'with-cuda'", None),
        ("Requires-Dist: nvidia-cublas-cu12>=12.1; extra == 'with-cuda'", None),
    ],
)
def test_the_cudnn_that_a_plugin_of_jax_needs(machine: Machine, line: str, needed: str | None) -> None:
    files = (
        JAX
        | installed("jaxlib-0.4.31")
        | {"site/jax_cuda12_plugin-0.4.31.dist-info/METADATA": f"Name: jax-cuda12-plugin\n{line}\n\n"}
    )

    assert jax.find(machine(files)).facts.get("cudnn_needed") == needed
