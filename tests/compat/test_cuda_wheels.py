"""Against NVIDIA's own wheels, where they are installed in this environment; none needs a GPU.

"pip install nvidia-cuda-runtime nvidia-cuda-nvrtc" (61 MB) is enough for the first tests;
nvidia-nvjitlink, nvidia-curand and nvidia-cudnn-jit-cu13 add theirs.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Library, Presence, ProbeReport
from mlbackends.survey import survey


def surveyed(probe: str, package: str) -> tuple[ProbeReport, Library]:
    """Survey one probe, and return its report and the copy that the wheel brought."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"the wheel {package} is not installed here")
    report = survey((probe,), Host(), Presence.USABLE, timeout=30.0).probes[probe]
    owned = [library for library in report.libraries if library.owner == f"{package} {installed}"]
    assert owned, f"{package} is installed, and {probe} did not find its library"
    assert report.failure is None
    return report, owned[0]


def agrees(library: Library, package: str) -> bool:
    """Tell whether the library's own version begins the one of its wheel."""
    return f"{version(package)}.".startswith(f"{library.version}.")


def test_the_runtime_tells_the_version_of_its_wheel() -> None:
    _, library = surveyed("cuda_runtime", "nvidia-cuda-runtime")

    assert library.presence.level >= Presence.LOADABLE.level
    assert agrees(library, "nvidia-cuda-runtime")


@pytest.mark.parametrize(
    ("probe", "package"),
    [
        ("nvrtc", "nvidia-cuda-nvrtc"),
        ("nvjitlink", "nvidia-nvjitlink"),
        ("curand", "nvidia-curand"),
    ],
)
def test_what_needs_no_device_is_usable_without_one(probe: str, package: str) -> None:
    report, library = surveyed(probe, package)

    assert (library.presence, library.reasons) == (Presence.USABLE, ())
    assert agrees(library, package)
    assert report.warnings == ()


def test_nvrtc_compiles_for_hopper() -> None:
    report, _ = surveyed("nvrtc", "nvidia-cuda-nvrtc")

    assert "9.0" in report.facts["compute_capabilities"]  # type: ignore[operator]


@pytest.mark.parametrize("package", ["nvidia-cudnn-jit-cu13", "nvidia-cudnn-cu13"])
def test_cudnn_tells_its_version_without_a_device(package: str) -> None:
    report, library = surveyed("cudnn", package)

    assert library.presence.level >= Presence.LOADABLE.level
    assert agrees(library, package)
    assert report.warnings == ()
