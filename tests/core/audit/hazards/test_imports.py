"""Packages that cannot be imported, that fall back to the CPU, and that lack what they require."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import SCHEMA, Library, Presence, ProbeReport, Report

HAS = ("package-cannot-be-imported", "package-falls-back")
CUDNN = "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"


#: The library that NumPy's wheel includes.
BLAS = "/site/numpy.libs/libscipy_openblas64_-32a4b2a6.so"


def openblas(reason: Reason) -> dict[str, ProbeReport]:
    """Return the report of NumPy's OpenBLAS, which does not open for this reason."""
    library = Library(
        *("openblas", BLAS, BLAS.rpartition("/")[2]),
        found_by="site-packages",
        owner="numpy 2.4.6",
        wins=True,
        reasons=(reason,),
    )
    return {"openblas": ProbeReport(Presence.FOUND, libraries=(library,))}


def failing(module: str, words: str, code: str = "import-failed", **changes: Any) -> dict[str, ProbeReport]:
    """Return the report of a package whose import ended with these words."""
    message = f"import {module} fails: {words}" if code == "import-failed" else words
    facts: dict[str, Any] = {
        "location": f"/site/{module}",
        "distribution": module,
        "imports": {module: message},
    }
    report = ProbeReport(Presence.FOUND, "2.0", facts, reasons=(Reason(code, message),), **changes)
    return {module: report}


def report(*packages: dict[str, ProbeReport], **facts: Any) -> Report:
    """Return a report of these packages. facts: of the probe packages."""
    python = ProbeReport(Presence.FOUND, "3.12.4", {"executable": "/venv/bin/python"})
    empty = ("openmp", "blas", "openblas", "cudnn")
    probes = {
        "python": python,
        "host": ProbeReport(Presence.FOUND, facts={"platform": "linux"}),
        "packages": ProbeReport(Presence.FOUND, facts={"count": 3, **facts}),
        **{name: ProbeReport(Presence.ABSENT) for name in empty},
    }
    for package in packages:
        probes |= package
    return Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 1.0, False, probes)


def failed(subject: Report, *codes: str) -> list[Check]:
    checks = examine(subject, only=codes).checks
    return [check for check in checks if check.status is Status.FAILED]


FINDINGS = (
    *(
        "package-cannot-be-imported",
        "requirements-not-met",
        "library-broken",
        "wheel-files-missing",
    ),
    "other-warning",
)


def test_where_every_import_fails_imports_were_checked() -> None:
    checks = examine(report(failing("numpy", "ended with SIGBUS", "crashed")), only=HAS[:1]).checks

    assert [check.status for check in checks] == [Status.FAILED]


def test_one_cause_is_one_finding_with_one_command() -> None:
    """Torch without its cuDNN package: what imports torch fails with the same words."""
    needs = {
        "package": "torch",
        "version": "2.15.0",
        "needs": "nvidia-cudnn-cu13",
        "wanted": "==9.26.0",
    }
    parts = {**needs, "needs": "cuda-toolkit", "extras": "cublas,cufft", "wanted": "==13.2.2"}
    subject = report(*(failing(name, CUDNN) for name in ("torch", "vllm", "xformers")), unmet=[needs, parts])

    (check,) = failed(subject, *FINDINGS)

    assert check.code == "package-cannot-be-imported" and check.severity is Severity.ERROR
    assert check.message == f"torch, vllm and xformers cannot be imported: {CUDNN}"
    assert check.command == (
        "/venv/bin/python -m pip install 'cuda-toolkit[cublas,cufft]==13.2.2' nvidia-cudnn-cu13==9.26.0"
    )


def test_a_missing_module_is_installed_in_the_range_that_packages_require() -> None:
    words = "ModuleNotFoundError: No module named 'typing_extensions'"
    rows = [
        {"package": name, "version": "1.0", "needs": "typing-extensions", "wanted": ">=4.10"}
        for name in ("torch", "pydantic", "rich")
    ]
    other = {"package": "rich", "version": "1.0", "needs": "pygments"}
    subject = report(failing("torch", words), unmet=[*rows, other])

    broken, unmet = failed(subject, *FINDINGS)

    assert broken.command == "/venv/bin/python -m pip install 'typing-extensions>=4.10'"
    assert unmet.code == "requirements-not-met" and unmet.severity is Severity.WARNING
    assert unmet.message == "1 requirement not met: rich 1.0 needs pygments (not installed)"
    assert unmet.command == "/venv/bin/python -m pip install pygments"


def test_a_module_whose_metadata_is_left_is_reinstalled() -> None:
    words = "ModuleNotFoundError: No module named 'typing_extensions'"
    installed = {"typing-extensions": "4.16.0", "torch": "2.0"}

    (check,) = failed(report(failing("torch", words), distributions=installed), *FINDINGS)

    assert check.command.endswith("--force-reinstall --no-deps typing-extensions==4.16.0")


@pytest.mark.parametrize("said", ["file too short", "cannot read file data", "invalid ELF header"])
def test_a_library_that_is_cut_off_is_reported_with_the_import_alone(said: str) -> None:
    blas = openblas(Reason("dlopen-failed", f"the loader reports: {BLAS}: {said}"))
    words = f"ImportError: {BLAS}: {said}; {BLAS} of numpy 2.4.6 has 40 bytes instead of 9000"

    (check,) = failed(report(failing("numpy", words), blas), *FINDINGS)

    assert check.code == "package-cannot-be-imported"
    assert check.command.endswith("--force-reinstall --no-deps numpy==2.4.6")


def test_a_crash_because_of_a_library_that_is_cut_off_is_one_finding_with_the_file() -> None:
    blas = openblas(Reason("not-a-library", f"{BLAS}: the file is cut short"))
    crash = "import {} ended the process with SIGBUS"
    packages = [failing(name, crash.format(name), "crashed") for name in ("numpy", "scipy")]

    (check,) = failed(report(*packages, blas), *FINDINGS)

    assert check.message == (
        f"numpy and scipy cannot be imported: ended the process with SIGBUS; {BLAS}: the file is cut short"
    )


def test_a_package_that_several_require_is_installed_in_all_their_ranges() -> None:
    rows = [
        {"package": "a", "version": "1", "needs": "torch", "extras": "opt", "wanted": "<3,>=2.4"},
        {"package": "b", "version": "1", "needs": "torch", "wanted": ">=2.4,!=2.5"},
        {"package": "c", "version": "1", "needs": "python", "wanted": ">=3.13", "installed": "3.12.4"},
    ]  # fmt: skip

    (check,) = failed(report(unmet=rows), *FINDINGS)

    assert check.command == "/venv/bin/python -m pip install 'torch[opt]!=2.5,<3,>=2.4'"


def test_a_file_that_is_missing_is_reinstalled_with_its_package() -> None:
    row = {
        "name": "nvidia-cudnn-cu13",
        "version": "9.26.0",
        "files": 1,
        "example": "/site/nvidia/cudnn/lib/libcudnn.so.9",
    }

    words = f"{CUDNN}; {row['example']} of nvidia-cudnn-cu13 9.26.0 is missing"

    (check,) = failed(report(failing("torch", words), missing_files=[row]), *FINDINGS)

    assert check.command.endswith("--force-reinstall --no-deps nvidia-cudnn-cu13==9.26.0")


def test_the_files_of_two_installations_in_one_folder_are_one_finding() -> None:
    twin = {"name": "numpy", "version": "1.26.4", "folder": "/site"}
    mixed = Reason("metadata-mismatch", "the metadata of numpy has version 1.26.4, and its files have 2.4.6")
    numpy = ProbeReport(Presence.FOUND, "2.4.6", {"distribution": "numpy"}, warnings=(mixed,))

    assert failed(report({"numpy": numpy}), "package-files-changed")
    assert not failed(report({"numpy": numpy}, installed_twice=[twin]), "package-files-changed")


SITE = "/venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        (f"ImportError: no 'x' in 'numpy'; this user may not read {SITE}/numpy, {SITE}/numpy.libs",
         f"{SITE}/numpy {SITE}/numpy.libs"),
        (f"PermissionError: [Errno 13] Permission denied: '{SITE}/numpy/__init__.py'", f"{SITE}/numpy"),
        (f"ImportError: {SITE}/numpy/a.so: cannot open shared object file: Permission denied",
         f"{SITE}/numpy"),
    ],
)  # fmt: skip
def test_what_this_user_may_not_read_is_one_finding_that_makes_it_readable(words: str, paths: str) -> None:
    closed = Reason("metadata-only", f"numpy 2.4.6 is installed, but this user may not read {SITE}/numpy")
    numpy = {"numpy": ProbeReport(Presence.FOUND, "2.4.6", reasons=(closed,))}

    (check,) = failed(report(failing("scipy", words), numpy if "this user" in words else {}), *FINDINGS)
    (alone,) = failed(report(numpy), *FINDINGS)

    assert check.command == f"chmod -R a+rX {paths}"
    assert (alone.code, alone.command) == ("wheel-files-missing", f"chmod -R a+rX {SITE}/numpy")


def test_a_package_without_its_many_requirements_is_installed_again() -> None:
    """So is one whose requirement lacks what the import names: pip installs what installed packages lack."""
    names = ("filelock", "numpy", "torch", "pydantic", "rich", "tqdm", "click")
    many = [{"package": "vllm", "version": "0.33.0", "needs": name} for name in names]
    words = "ModuleNotFoundError: No module named '{}'"

    (check,) = failed(report(failing("vllm", words.format("torch")), unmet=many), *FINDINGS)
    (nested,) = failed(report(failing("vllm", words.format("httpcore")), unmet=many[:1]), *FINDINGS)

    assert check.command == nested.command == "/venv/bin/python -m pip install vllm==0.33.0"


@pytest.mark.parametrize("words", ["No module named 'torch'", "x requires torch to be installed. See"])
def test_a_missing_torch_is_installed_whether_or_not_it_is_required(words: str) -> None:
    unmet = [{"package": "sgl_kernel", "version": "2.0", "needs": "torch"}] * ("requires" in words)

    (check,) = failed(report(failing("sgl_kernel", f"ModuleNotFoundError: {words}"), unmet=unmet), *FINDINGS)

    assert check.command == "/venv/bin/python -m pip install torch"


@pytest.mark.parametrize("code", ["crashed", "exited"])
def test_a_crash_has_the_command_that_shows_where(code: str) -> None:
    words = "import torch ended the process with SIGILL"

    (check,) = failed(report(failing("torch", words, code)), *FINDINGS)

    assert check.severity is Severity.ERROR
    assert check.message == "torch 2.0 cannot be imported: ended the process with SIGILL"
    assert "/venv/bin/python -X faulthandler -c 'import" in check.hint and check.command == ""


def test_an_import_that_ran_out_of_time_is_not_known_to_fail() -> None:
    subject = report(failing("torch", "import torch gave no answer within 30 s", "timed-out"))

    (check,) = examine(subject, only=("package-cannot-be-imported",)).checks

    assert check.status is Status.UNKNOWN
    assert "import torch gave no answer" in check.message


def test_a_package_that_lacks_only_the_driver_is_a_note() -> None:
    words = "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"

    (check,) = failed(report(failing("vllm", words)), *FINDINGS)

    assert check.severity is Severity.NOTE


def test_a_package_for_another_cuda_than_torchs_is_replaced() -> None:
    words = "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory"
    torch = ProbeReport(Presence.LOADABLE, "2.15.0+cu132", {"cuda_version": "13.2"})

    (check,) = failed(report(failing("sgl_kernel", words), {"torch": torch}), *FINDINGS)

    assert check.hint == "install the builds for CUDA 13, which torch is built for"


def falling_back(words: str, devices: int = 0) -> Report:
    facts: dict[str, Any] = {"distribution": "onnxruntime-gpu", "accelerators": {"cuda": words}}
    warning = Reason("falls-back", f"onnxruntime-gpu 1.31 loads, then falls back: cuda: {words}")
    package = {"onnxruntime": ProbeReport(Presence.USABLE, "1.31", facts, warnings=(warning,))}
    from mlbackends.model.records import Device

    gpus = tuple(Device("cuda", at) for at in range(devices))
    return report(package, {"nvidia": ProbeReport(Presence.FOUND, devices=gpus)})


@pytest.mark.parametrize(
    ("words", "devices", "severity", "command"),
    [
        ("libcublasLt.so.13: cannot open shared object file", 0, Severity.WARNING, "[cuda,cudnn]'"),
        ("no CUDA-capable device is detected", 0, Severity.NOTE, ""),
        ("no CUDA-capable device is detected", 1, Severity.WARNING, ""),
    ],
)
def test_a_fall_back_is_a_warning_where_an_accelerator_or_a_library_is_missing(
    words: str, devices: int, severity: Severity, command: str
) -> None:
    (check,) = failed(falling_back(words, devices), "package-falls-back", "other-warning")

    assert check.severity is severity
    assert words in check.message
    assert check.command.endswith(command)


def test_a_report_in_which_nothing_was_imported_is_unknown() -> None:
    torch = ProbeReport(Presence.FOUND, "2.0", {"location": "/site/torch"})

    (check,) = examine(report({"torch": torch}), only=("package-cannot-be-imported",)).checks

    assert check.status is Status.UNKNOWN
