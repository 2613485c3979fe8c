from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry

if TYPE_CHECKING:
    from tests.conftest import Machine

cutlass, flash_attention, transformer_engine, triton, xformers = (
    registry.load(registry.PROBES, name)
    for name in ("cutlass", "flash_attention", "transformer_engine", "triton", "xformers")
)


def torch(version: str, cuda: str = "") -> dict[str, str | bytes]:
    """Return the files of a torch, of which only version.py is read."""
    text = f"__version__ = '{version}'\ncuda = {cuda!r}\n"
    return {"site/torch/__init__.py": "", "site/torch/version.py": text}


def installed(*names: str) -> dict[str, str | bytes]:
    return {f"site/{name}.dist-info/METADATA": "" for name in names}


# ---- Triton --------------------------------------------------------------------------------------


def test_triton_tells_back_ends_and_tools(machine: Machine) -> None:
    files = installed("triton-3.7.0") | {
        "site/triton/__init__.py": '"""isort:skip_file"""\n__version__ = \'3.7.0\'\n',
        "site/triton/backends/nvidia/compiler.py": "",
        "site/triton/backends/nvidia/bin/ptxas": b"\x7fELF",
        "site/triton/backends/amd/compiler.py": "",
        "site/triton/backends/__pycache__/x.pyc": b"",
        "site/triton_cpu_backend-1.dist-info/entry_points.txt": "[triton.backends]\ncpu = a.cpu\n",
    }

    finding = triton.find(machine(files))

    assert finding.version == "3.7.0"
    assert finding.facts == {
        "distribution": "triton",
        "location": "/site/triton",
        "backends": ["amd", "cpu", "nvidia"],
        "bundled_tools": ["ptxas"],
    }
    assert finding.warnings == ()


def test_a_variable_that_names_no_ptxas_is_a_warning(machine: Machine) -> None:
    files = installed("triton-3.7.0") | {"site/triton/__init__.py": ""}

    finding = triton.find(machine(files, TRITON_PTXAS_PATH="/gone/ptxas"))

    assert finding.facts["environment"] == {"TRITON_PTXAS_PATH": "/gone/ptxas"}
    assert [warning.code for warning in finding.warnings] == ["override-invalid"]


# ---- CUTLASS -------------------------------------------------------------------------------------


def test_the_cutlass_dsl_is_told_with_its_libraries(machine: Machine) -> None:
    files = installed(
        "nvidia_cutlass_dsl-4.8.1",
        "nvidia_cutlass_dsl_libs_base-4.8.1",
        "nvidia_cutlass_dsl_libs_cu13-4.8.1",
        "cuda_tile-1.7.0",
    )
    files["site/nvidia_cutlass_dsl/python_packages/cutlass/__init__.py"] = ""
    files["site/cuda/tile/__init__.py"] = ""

    finding = cutlass.find(machine(files))

    assert finding.version == "4.8.1"
    assert finding.facts == {
        "packages": {"nvidia-cutlass-dsl": "4.8.1", "cuda-tile": "1.7.0"},
        "locations": {
            "nvidia-cutlass-dsl": "/site/nvidia_cutlass_dsl/python_packages/cutlass",
            "cuda-tile": "/site/cuda/tile",
        },
        "dsl_libraries": {
            "nvidia-cutlass-dsl-libs-base": "4.8.1",
            "nvidia-cutlass-dsl-libs-cu13": "4.8.1",
        },
    }
    assert (finding.reasons, finding.warnings) == ((), ())


def test_the_dsl_without_its_libraries_lacks_its_files(machine: Machine) -> None:
    finding = cutlass.find(machine(installed("nvidia_cutlass_dsl-4.8.1")))

    assert [reason.code for reason in finding.reasons] == ["metadata-only"]


# ---- FlashAttention ------------------------------------------------------------------------------

FLASH: dict[str, str | bytes] = {
    "site/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE.dist-info/METADATA": "",
    "site/flash_attn/__init__.py": '__version__ = "2.8.3"\n',
    "site/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so": b"",
}


def test_flash_attn_tells_what_its_wheel_was_built_for(machine: Machine) -> None:
    finding = flash_attention.find(machine(FLASH | torch("2.8.0+cu128", "12.8")))

    assert finding.version == "2.8.3"
    assert finding.facts == {
        "packages": {"flash-attn": "2.8.3"},
        "locations": {"flash-attn": "/site/flash_attn"},
        "built_for_torch": "2.8",
        "built_for_cuda": "12",
        "extension_modules": ["flash_attn_2_cuda"],
    }
    assert finding.warnings == ()


def test_flash_attn_for_another_torch_is_a_conflict(machine: Machine) -> None:
    (warning,) = flash_attention.find(machine(FLASH | torch("2.13.0+cpu"))).warnings

    assert warning.code == "conflict"
    assert warning.message == "flash-attn is built for torch 2.8, and torch 2.13.0+cpu is installed"


def test_flash_attn_4_is_found_beside_flash_attn(machine: Machine) -> None:
    files = FLASH | installed("flash_attn_4-4.0.0b36")
    files["site/flash_attn/cute/__init__.py"] = ""

    finding = flash_attention.find(machine(files))

    assert finding.facts["packages"] == {"flash-attn": "2.8.3", "flash-attn-4": "4.0.0b36"}
    assert finding.reasons == ()


def test_flashinfer_kernels_of_another_release_are_a_conflict(machine: Machine) -> None:
    files = installed("flashinfer_python-0.7.2.post1", "flashinfer_cubin-0.6.13")
    files |= installed("flashinfer_jit_cache-0.7.2.post1+cu130")
    files["site/flashinfer/__init__.py"] = ""

    finding = flash_attention.find(machine(files))

    assert finding.facts["flashinfer_parts"] == {
        "flashinfer-cubin": "0.6.13",
        "flashinfer-jit-cache": "0.7.2.post1+cu130",
    }
    (warning,) = finding.warnings
    assert warning.message == "flashinfer-cubin is 0.6.13, and flashinfer-python is 0.7.2.post1"


# ---- xFormers ------------------------------------------------------------------------------------

CPP_LIB = (
    '{"version": {"cuda": 1208, "hip": null, "torch": "2.10.0+cu128", "python": "3.10.19"}, '
    '"env": {"TORCH_CUDA_ARCH_LIST": "7.5 8.0+PTX 9.0a", "PYTORCH_ROCM_ARCH": null}}'
)


def xformers_files(build: str | bytes) -> dict[str, str | bytes]:
    return installed("xformers-0.0.35") | {
        "site/xformers/__init__.py": "",
        "site/xformers/version.py": '# noqa: C801\n__version__ = "0.0.35"\n',
        "site/xformers/cpp_lib.json": build,
    }


def test_xformers_tells_what_it_was_built_for(machine: Machine) -> None:
    files = xformers_files(CPP_LIB) | torch("2.10.0+cu128", "12.8")

    finding = xformers.find(machine(files))

    assert finding.facts == {
        "distribution": "xformers",
        "location": "/site/xformers",
        "built_for_torch": "2.10.0+cu128",
        "built_for_python": "3.10.19",
        "built_for_architectures": "7.5 8.0+PTX 9.0a",
        "built_for_cuda": "12.8",
    }
    assert finding.warnings == ()


def test_xformers_for_another_torch_is_a_conflict(machine: Machine) -> None:
    files = xformers_files(CPP_LIB) | torch("2.15.0+cu132", "13.2")

    (warning,) = xformers.find(machine(files)).warnings

    assert warning.message == (
        "xformers is built for torch 2.10.0+cu128, and torch 2.15.0+cu132 is installed"
    )


@pytest.mark.parametrize(
    "build",
    [
        b"",
        b"\0\xff",
        b"[]",
        b'{"version": 1, "env": []}',
        b'{"version": {"cuda": "x", "torch": 5, "flash": ""}, "env": {}}',
        b'{"version": {"cuda": -100000, "use_torch_flash": 3}}',
        b'{"version": {"cuda": 99999999999999999999999}}',
        b"[" * 50_000,
    ],
)
def test_a_build_record_that_makes_no_sense_tells_nothing(machine: Machine, build: bytes) -> None:
    finding = xformers.find(machine(xformers_files(build) | torch("2.10.0")))

    assert finding.facts == {"distribution": "xformers", "location": "/site/xformers"}
    assert finding.warnings == ()


# ---- Transformer Engine --------------------------------------------------------------------------


def engine(*parts: str) -> dict[str, str | bytes]:
    return installed("transformer_engine-2.20.2", *parts) | {"site/transformer_engine/__init__.py": ""}


def test_the_parts_of_transformer_engine_are_told(machine: Machine) -> None:
    files = engine("transformer_engine_cu13-2.20.2", "transformer_engine_torch-2.20.2")

    host = machine(files | torch("2.13.0+cu132", "13.2"), NVTE_FLASH_ATTN="0")
    finding = transformer_engine.find(host)

    assert finding.version == "2.20.2"
    assert finding.facts == {
        "distribution": "transformer-engine",
        "location": "/site/transformer_engine",
        "parts": {"transformer-engine-cu13": "2.20.2", "transformer-engine-torch": "2.20.2"},
        "cuda_major": "13",
        "environment": {"NVTE_FLASH_ATTN": "0"},
    }
    assert finding.warnings == ()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("transformer_engine_cu13-2.19.0",),
         "transformer-engine is 2.20.2, and transformer-engine-cu13 is 2.19.0"),
        (("transformer_engine_cu12-2.20.2", "transformer_engine_cu13-2.20.2"),
         "transformer-engine is installed for CUDA 12 and 13"),
        (("transformer_engine_cu12-2.20.2",),
         "transformer-engine is for CUDA 12, and torch is built for CUDA 13.2"),
    ],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_a_conflict(
    machine: Machine, parts: tuple[str, ...], said: str
) -> None:
    files = engine(*parts) | torch("2.13.0+cu132", "13.2")

    warnings = transformer_engine.find(machine(files)).warnings

    assert [(warning.code, warning.message) for warning in warnings] == [("conflict", said)]


# ---- opt_einsum ----------------------------------------------------------------------------------


def test_opt_einsum_tells_its_version(machine: Machine) -> None:
    files = installed("opt_einsum-3.4.0") | {
        "site/opt_einsum/__init__.py": "",
        "site/opt_einsum/_version.py": "__version__ = version = '3.4.0'\n",
    }

    finding = registry.load("mlbackends_probes", "opt_einsum").find(machine(files))

    assert (finding.version, finding.reasons) == ("3.4.0", ())


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"HOME": "/home/me"}, "nfs4"),
        ({"HOME": "/root"}, "ext4"),
        ({"HOME": "/home/me", "TRITON_CACHE_DIR": "/tmp/cache"}, "tmpfs"),
        ({"HOME": "/root", "TRITON_HOME": "/home"}, "nfs4"),
        ({}, None),
    ],
)
def test_the_file_system_of_tritons_cache(
    machine: Machine, environment: dict[str, str], kind: str | None
) -> None:
    mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nnone /tmp tmpfs rw 0 0\n"
    files = installed("triton-3.7.0") | {"proc/mounts": mounts, "site/triton/__init__.py": ""}

    facts = triton.find(machine(files, environment=environment)).facts

    assert facts.get("cache_file_system") == kind
