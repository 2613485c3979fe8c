from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import packages

numpy = registry.load(registry.PROBES, "numpy")

if TYPE_CHECKING:
    from tests.conftest import Machine


MESON = """
CONFIG = _cleanup(
    {
        "Compilers": {
            "c": {"name": "gcc", "linker": r"ld.bfd", "version": "14.2.1", "args": r""},
            "cython": {"name": "cython", "version": "3.2.4"},
        },
        "Build Dependencies": {
            "blas": {
                "name": "scipy-openblas",
                "found": bool("True".lower().replace("false", "")),
                "version": "0.3.31.188.0",
                "lib directory": r"/opt/openblas/lib",
                "openblas configuration": r"OpenBLAS 0.3.31  USE64BITINT Haswell MAX_THREADS=64",
            },
            "lapack": {"name": "mkl", "version": "unknown"},
        },
    }
)
"""
OLD = """
blas_mkl_info={}
openblas64__info={'libraries': ['openblas64_', 'openblas64_'], 'library_dirs': ['/usr/local/lib']}
blas_ilp64_opt_info={'libraries': ['openblas64_', 'openblas64_'], 'library_dirs': ['/usr/local/lib']}
"""


def site(module: str, config: str) -> dict[str, str | bytes]:
    return {
        f"site/{module}-2.4.6.dist-info/METADATA": "",
        f"site/{module}/__init__.py": "",
        f"site/{module}/version.py": 'version = "2.4.6"\n__version__ = version\n',
        f"site/{module}/__config__.py": config,
    }


@pytest.mark.parametrize("module", ["numpy", "scipy"])
def test_the_blas_of_the_build_is_told(machine: Machine, module: str) -> None:
    files = site(module, MESON) | {
        f"site/{module}.libs/libscipy_openblas64_-32a4b2a6.so": "",
        f"site/{module}.libs/readme.txt": "",
    }

    finding = registry.load("mlbackends_probes", module).find(machine(files))

    assert finding.version == "2.4.6"
    assert finding.facts == {
        "distribution": module,
        "location": f"/site/{module}",
        "blas": "scipy-openblas",
        "blas_version": "0.3.31.188.0",
        "blas_configuration": "OpenBLAS 0.3.31 USE64BITINT Haswell MAX_THREADS=64",
        "blas_folder": "/opt/openblas/lib",
        "lapack": "mkl",
        "compiler": "gcc 14.2.1",
        "bundled_libraries": ["libscipy_openblas64_-32a4b2a6.so"],
    }


def test_a_build_before_meson_names_its_blas(machine: Machine) -> None:
    facts = numpy.find(machine(site("numpy", OLD))).facts

    assert facts["blas"] == "openblas64_"
    assert "blas_version" not in facts


def test_libraries_in_a_wheel_for_macos_are_listed(machine: Machine) -> None:
    files = site("numpy", "") | {"site/numpy/.dylibs/libgfortran.5.dylib": ""}

    facts = numpy.find(machine(files)).facts

    assert facts["bundled_libraries"] == ["libgfortran.5.dylib"]


@pytest.mark.parametrize(
    "config", ["", "\0\xff", '"blas": {', '"blas": {"name": 1}', "blas_opt_info={}", "{" * 50_000]
)
def test_a_config_that_makes_no_sense_tells_nothing(machine: Machine, config: str) -> None:
    facts = numpy.find(machine(site("numpy", config))).facts

    assert facts == {"distribution": "numpy", "location": "/site/numpy"}


def test_a_numpy_that_scipy_does_not_accept_is_an_unmet_requirement(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        "site/scipy-1.17.1.dist-info/METADATA": "Requires-Dist: numpy<2.7,>=1.26.4\n\n",
        "site/scipy/__init__.py": "",
        "site/numpy-1.25.0.dist-info/METADATA": "",
    }

    assert packages.find(machine(files)).facts["unmet"] == [
        {
            "package": "scipy",
            "version": "1.17.1",
            "needs": "numpy",
            "wanted": "<2.7,>=1.26.4",
            "installed": "1.25.0",
        }
    ]


def test_variables_are_told_and_checked(machine: Machine) -> None:
    host = machine(site("numpy", ""), NPY_DISABLE_CPU_FEATURES="AVX512F", NPY_PROMOTION_STATE="loud")

    finding = numpy.find(host)

    assert finding.facts["environment"] == {
        "NPY_DISABLE_CPU_FEATURES": "AVX512F",
        "NPY_PROMOTION_STATE": "loud",
    }
    assert [warning.code for warning in finding.warnings] == ["override-invalid"]


def test_numpy_is_imported_to_compute_where_it_is_named() -> None:
    pytest.importorskip("numpy")

    report = survey(("numpy",), computing=("numpy",)).probes["numpy"]

    assert report.presence is Presence.USABLE
    assert report.facts["simd_baseline"] or report.facts["simd_found"]
