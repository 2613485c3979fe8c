"""Hazards of libraries and wheels, on machines that have them and on machines that do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.libraries.elf import ElfImage
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import Device, Library, Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.records import Report

HOSTS = Path(__file__).resolve().parents[3] / "hosts"
#: No recorded machine has these.
HAS = ("other-warning", "torch-without-code-for-gpu", "packages-do-not-fit")


@cache
def report(name: str) -> Report:
    return report_of(str(HOSTS / f"{name}.machine"))


def with_probe(base: Report, probe: str, **changes: Any) -> Report:
    """Return a report with other fields of one probe; `facts` are put over those that it has."""
    before = base.probes[probe]
    facts = {**before.facts, **changes.pop("facts", {})}
    changed = msgspec.structs.replace(before, facts=facts, **changes)
    return msgspec.structs.replace(base, probes={**base.probes, probe: changed})


def with_packages(base: Report, **versions: str) -> Report:
    told = {
        **base.probes["packages"].facts.get("distributions", {}),  # type: ignore[dict-item]
        **{name.replace("_", "-"): version for name, version in versions.items()},
    }
    return with_probe(base, "packages", facts={"distributions": told})


def checks(subject: Report, code: str) -> tuple[Check, ...]:
    return examine(subject, only=(code,)).checks


def only(subject: Report, code: str) -> Check:
    (check,) = checks(subject, code)
    return check


def statuses(subject: Report, code: str) -> set[Status]:
    return {check.status for check in checks(subject, code)}


# ---- OpenMP --------------------------------------------------------------------------------------


def meeting(*runtimes: tuple[str, str]) -> Report:
    """Return a report in which runtimes, as (maker, owner), meet."""
    libraries = tuple(
        Library("openmp", f"/site/{owner}.libs/{maker}.so", owner=f"{owner} 1", facts={"runtime": maker})
        for maker, owner in runtimes
    )
    facts = {"conflicting_copies": [library.path for library in libraries]}
    warning = Reason("conflict", "they meet", "set OMP_NUM_THREADS")
    base = report("stale-conda-workstation")
    return with_probe(base, "openmp", libraries=libraries, facts=facts, warnings=(warning,))


def test_a_runtime_that_is_a_package_alone_can_be_uninstalled() -> None:
    subject = meeting(("intel", "intel-openmp"), ("gnu", "scikit-learn"))

    command = only(subject, "openmp-two-runtimes").command

    assert command == "/opt/conda/envs/vision/bin/python -m pip uninstall intel-openmp"


@pytest.mark.parametrize("value", ["FALSE", "0", ""])
def test_the_silenced_check_is_none_where_the_variable_says_no(value: str) -> None:
    base = report("stale-conda-workstation")
    subject = with_probe(base, "environment", facts={"variables": {"KMP_DUPLICATE_LIB_OK": value}})

    assert only(subject, "kmp-duplicate-lib-ok").status is Status.PASSED


def test_the_silenced_check_is_an_error_where_it_would_have_spoken() -> None:
    subject = meeting(("intel", "torch"), ("llvm", "faiss"))

    assert only(subject, "kmp-duplicate-lib-ok").severity is Severity.ERROR


# ---- search paths --------------------------------------------------------------------------------


def test_shadowing_is_told_once_for_a_folder_with_the_command_that_mends_it() -> None:
    (check,) = checks(report("cluster-modules-node"), "ld-library-path-shadows-wheels")

    assert "/opt/apps/cuda/12.2/lib64/libnvJitLink.so.12 (12.2) is loaded" in check.message
    assert "nvidia-nvjitlink-cu12 12.8.93" in check.message
    assert check.command == (
        "export LD_LIBRARY_PATH=/opt/apps/vendor/lib:/opt/apps/cudnn/9.2/lib"
        ":/opt/apps/gcc/4.9/lib64:/opt/apps/mpich/lib"
    )
    # What libtorch_cuda needs itself, cuBLAS among it, it finds by RPATH.
    assert check.evidence.keys() == {"nvjitlink.libraries.path"}


def test_without_an_rpath_torch_gets_what_the_search_path_names() -> None:
    subject = with_probe(report("cluster-modules-node"), "torch", facts={"own_folders_first": False})

    (check,) = checks(subject, "ld-library-path-shadows-wheels")

    assert check.evidence.keys() == {"cublas.libraries.path", "nvjitlink.libraries.path"}
    assert check.message.endswith("and 2 more of wheels")


@pytest.mark.parametrize(
    ("version", "status"),
    [("9.18.1", Status.FAILED), ("9.19.0", Status.PASSED), ("9.20.0", Status.PASSED)],
)
def test_torch_asks_for_the_minor_version_of_cudnn_and_not_for_its_patch(
    version: str, status: Status
) -> None:
    base = report("cluster-modules-node")
    pins = [{"package": "nvidia-cudnn-cu12", "wanted": "9.19.4.30", "found": ""}]
    copies = tuple(
        msgspec.structs.replace(library, version=version) for library in base.probes["cudnn"].libraries
    )
    pinned = with_probe(base, "torch", facts={"pins": pins})
    subject = with_probe(pinned, "cudnn", libraries=copies)

    assert only(subject, "cudnn-older-than-pinned").status is status


def test_the_systems_cudnn_on_the_search_path_gives_its_parts_to_the_wheels() -> None:
    environment = {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu", "HOME": "/home/ml"}
    host = Host(str(HOSTS / "hgx-h100-eight-gpus.machine"), environment=environment)
    subject = survey((), host, Presence.FOUND)

    check = only(subject, "cudnn-sublibrary-mismatch")

    assert "torch opens /home/ml/venv" in check.message and "9.5.1" in check.message
    assert check.command == "unset LD_LIBRARY_PATH"
    # 9.5.1 is newer than the 9.1.0.70 that torch pins, and torch opens the wheel's.
    assert only(subject, "cudnn-older-than-pinned").status is Status.PASSED
    assert only(subject, "ld-library-path-shadows-wheels").status is Status.PASSED
    without = with_probe(subject, "torch", facts={"own_folders_first": False})
    assert "cudnn.libraries.path" in only(without, "ld-library-path-shadows-wheels").evidence


def test_a_search_path_that_names_a_wheels_own_folder_is_no_alarm() -> None:
    folder = "/home/ml/venv/lib/python3.10/site-packages/nvidia/cudnn/lib"
    host = Host(str(HOSTS / "hgx-h100-eight-gpus.machine"), environment={"LD_LIBRARY_PATH": folder})
    subject = survey((), host, Presence.FOUND)

    assert only(subject, "ld-library-path-shadows-wheels").status is Status.PASSED
    assert only(subject, "cudnn-sublibrary-mismatch").status is Status.PASSED


RPATH = "what needs it in numpy finds it by RPATH, which is searched before LD_LIBRARY_PATH"


@pytest.mark.parametrize("because", [RPATH, "the packages of this Python environment open it"])
def test_a_bad_file_on_the_search_path_stops_no_package_with_an_rpath(because: str) -> None:
    brought = copy_of_openblas(presence=Presence.USABLE, wins_because=because)
    listed = copy_of_openblas(
        "not-a-library", path=f"/opt/x/{brought.soname}", found_by="LD_LIBRARY_PATH", wins=False
    )

    statuses_told = statuses(opened(listed, brought), "library-broken")

    assert statuses_told == {Status.PASSED if because is RPATH else Status.FAILED}


def test_a_copy_that_its_package_finds_by_rpath_is_not_shadowed() -> None:
    brought = copy_of_openblas(wins_because=RPATH, version="0.3.30")
    listed = copy_of_openblas(
        path=f"/opt/x/{brought.soname}",
        found_by="LD_LIBRARY_PATH",
        wins=False,
        version="0.3.29",
        owner="",
    )
    taken = msgspec.structs.replace(listed, wins=True)
    left = msgspec.structs.replace(brought, wins=False)
    code = "ld-library-path-shadows-wheels"

    assert statuses(opened(listed, brought), code) == {Status.PASSED}
    assert statuses(opened(taken, left), code) == {Status.FAILED}


def broken(found_by: str, reason: str, path: str, *others: Library) -> Report:
    library = Library("nccl", path, path.rpartition("/")[2], found_by=found_by)
    library = msgspec.structs.replace(library, reasons=(Reason(reason, f"{path} is bad"),))
    return with_probe(report("hgx-h100-eight-gpus"), "nccl", libraries=(library, *others))


GOOD = Library("nccl", "/usr/lib/libnccl.so.2", "libnccl.so.2", wins=True)


def test_the_loader_passes_a_library_for_another_processor_and_stops_at_what_is_none() -> None:
    code, path = "library-broken", "/opt/x/libnccl.so.2"

    passed = broken("LD_LIBRARY_PATH", "wrong-architecture", path, GOOD)
    fatal = broken("LD_LIBRARY_PATH", "not-a-library", path, GOOD)

    assert only(passed, code).status is Status.UNKNOWN
    # torch passes both by: it finds NCCL by RPATH.
    assert only(fatal, code).status is Status.UNKNOWN
    fatal = with_probe(fatal, "torch", facts={"own_folders_first": False})
    assert only(fatal, code).severity is Severity.ERROR
    # The loader tells of a file that it cannot preload, and goes on.
    preloaded = with_probe(
        broken("LD_PRELOAD", "not-a-library", path, GOOD),
        "torch",
        facts={"own_folders_first": False},
    )
    assert only(preloaded, code).status is Status.UNKNOWN


def test_a_linker_script_is_no_broken_library() -> None:
    subject = broken("site-packages", "not-a-library", "/site/x.libs/../libnccl.so")

    script = broken("ld.so.cache", "not-a-library", "/usr/lib/libnccl.so")

    assert only(script, "library-broken").status is Status.UNKNOWN
    assert only(subject, "library-broken").status is Status.FAILED


def test_a_leftover_of_the_system_is_a_note_and_a_wheels_library_an_error() -> None:
    leftover = only(report("zen2-desktop-nouveau"), "library-broken")
    wheel = broken("site-packages", "dangling-link", "/site/nvidia/nccl/lib/libnccl.so.2")

    assert leftover.severity is Severity.NOTE
    assert only(wheel, "library-broken").severity is Severity.ERROR


# ---- libraries that were opened ----------------------------------------------------------------


def opened(*libraries: Library) -> Report:
    """Return a report of a machine whose libraries were opened, with these for openblas."""
    base = msgspec.structs.replace(report("z15-lpar"), depth=Presence.USABLE)
    probes = {name: msgspec.structs.replace(probe, libraries=()) for name, probe in base.probes.items()}
    probes["openblas"] = msgspec.structs.replace(probes["openblas"], libraries=libraries)
    return msgspec.structs.replace(base, probes=probes)


def copy_of_openblas(
    code: str = "", said: str = "the loader reports: it is damaged", **changes: Any
) -> Library:
    library = Library(
        "openblas",
        "/site/numpy.libs/libscipy_openblas64_-32a4b2a6.so",
        "libscipy_openblas64_-32a4b2a6.so",
        found_by="site-packages",
        owner="numpy 2.4.6",
        wins=True,
        reasons=(Reason(code, said),) if code else (),
    )
    return msgspec.structs.replace(library, **changes)


@pytest.mark.parametrize("code", ["dlopen-failed", "missing-dependency", "crashed", "exited"])
def test_a_library_that_could_not_be_opened_is_an_error_with_its_owner_and_the_command(
    code: str,
) -> None:
    check = only(opened(copy_of_openblas(code)), "library-broken")

    assert check.severity is Severity.ERROR and check.status is Status.FAILED
    assert "libscipy_openblas64_-32a4b2a6.so: the loader reports" in check.message
    assert check.message.endswith("; it belongs to numpy 2.4.6")
    assert check.command.endswith("--force-reinstall --no-deps numpy==2.4.6")
    assert check.evidence["openblas.libraries.reasons.code"] == [code]


@pytest.mark.parametrize("code", ["crashed", "wrong-result"])
def test_a_library_that_opens_and_fails_when_it_computes_is_an_error(code: str) -> None:
    library = copy_of_openblas(code, presence=Presence.LOADABLE)

    assert only(opened(library), "library-broken").severity is Severity.ERROR


@pytest.mark.parametrize("code", ["no-driver", "no-device", "no-use-check", "call-failed"])
def test_what_needs_a_device_or_cannot_be_checked_is_not_broken(code: str) -> None:
    library = copy_of_openblas(code, presence=Presence.LOADABLE)

    assert only(opened(library), "library-broken").status is Status.PASSED


def test_a_copy_that_nobody_would_load_may_be_broken() -> None:
    whole = copy_of_openblas(
        path="/opt/lib/libopenblas.so.0",
        soname="libopenblas.so.0",
        found_by="LD_LIBRARY_PATH",
        presence=Presence.USABLE,
    )
    shadowed = msgspec.structs.replace(
        copy_of_openblas("dlopen-failed"),
        path="/usr/lib/libopenblas.so.0",
        soname="libopenblas.so.0",
        found_by="ld.so.cache",
        wins=False,
    )
    aside = msgspec.structs.replace(
        shadowed, path="/opt/toolkit/libopenblas.so.3", found_by="well-known-folder", wins=True
    )

    assert only(opened(whole, shadowed, aside), "library-broken").status is Status.PASSED


def test_a_wheels_own_copy_is_loaded_whichever_copy_wins() -> None:
    first = copy_of_openblas(path="/site/scipy.libs/lib-1.so", presence=Presence.USABLE)
    second = copy_of_openblas("dlopen-failed", wins=False)
    preloaded = msgspec.structs.replace(first, found_by="LD_LIBRARY_PATH")

    assert only(opened(first, second), "library-broken").severity is Severity.ERROR
    assert only(opened(preloaded, second), "library-broken").status is Status.PASSED


def test_a_missing_driver_is_a_note_and_what_a_package_has_opened_before_is_not_missing() -> None:
    def lacking(name: str) -> Library:
        return copy_of_openblas("missing-dependency", f"it needs {name}, which the loader does not find")

    here = copy_of_openblas(
        path="/site/nvidia/cublas/lib/libcublas.so.12",
        soname="libcublas.so.12",
        presence=Presence.LOADABLE,
    )
    note = only(opened(lacking("libcuda.so.1")), "library-broken")

    assert (note.severity, note.command) == (Severity.NOTE, "")
    assert only(opened(lacking("libcublas.so.12")), "library-broken").severity is Severity.ERROR
    assert only(opened(lacking("libcublas.so.12"), here), "library-broken").status is Status.PASSED


def test_a_library_that_was_not_opened_is_not_known_to_be_whole() -> None:
    late = only(opened(copy_of_openblas("timed-out", "it took too long")), "library-broken")
    subject = opened(copy_of_openblas())
    found = only(msgspec.structs.replace(subject, depth=Presence.FOUND), "library-broken")

    assert late.status is Status.UNKNOWN and "it took too long" in late.message
    assert found.status is Status.UNKNOWN
    assert "--depth found: 1 library was found and not opened" in found.message


def test_a_damaged_library_of_a_wheel_is_told_of_the_live_machine(
    tmp_path: Path, fake_library: Callable[..., Path]
) -> None:
    whole = fake_library("openblas", "libscipy_openblas64_-32a4b2a6.so", source="int x;")
    folder = tmp_path / "site" / "numpy.libs"
    folder.mkdir(parents=True)
    with ElfImage(str(whole)) as image:
        end = max(offset + size for _, offset, _, size in image.segments)
    # The head stays, by which it is found; of the last segment a byte is cut off.
    (folder / whole.name).write_bytes(whole.read_bytes()[: end - 1])
    host = Host(python={"path": [str(tmp_path / "site")]}, environment={})
    subject = survey(("openblas",), host, Presence.USABLE)

    check = only(subject, "library-broken")

    assert check.status is Status.FAILED
    assert check.severity is Severity.ERROR
    assert str(folder / whole.name) in check.message


# ---- torch and GPUs ------------------------------------------------------------------------------


def with_gpu(version: str, cuda: str, capability: str, machine: str = "x86_64") -> Report:
    base = report("hgx-h100-eight-gpus")
    gpu = Device("cuda", 0, "the GPU", capability=capability)
    base = with_probe(base, "nvidia", devices=(gpu,))
    base = with_probe(base, "host", facts={"machine": machine})
    return with_probe(base, "torch", version=version, facts={"cuda_version": cuda})


@pytest.mark.parametrize(
    ("version", "cuda", "capability"),
    [
        ("2.9.0+cu130", "13.0", "6.1"),
        ("2.9.0+cu128", "12.8", "6.1"),
        ("2.7.1+cu128", "12.8", "7.0"),
        ("2.11.0+cu128", "12.8", "7.0"),
        ("2.10.0+cu126", "12.6", "12.0"),
        ("2.6.0+cu124", "12.4", "10.0"),
        ("2.5.1+cu118", "11.8", "12.0"),
        ("2.14.0", "13.0", "7.0"),
        ("2.9.0a0+git1234567", "13.0", "7.0"),
        ("2.1.0+cu121", "12.1", "3.7"),
    ],
)
def test_a_gpu_that_no_code_is_for_is_an_error(version: str, cuda: str, capability: str) -> None:
    check = only(with_gpu(version, cuda, capability), "torch-without-code-for-gpu")

    assert check.status is Status.FAILED
    assert f"is {capability}" in check.message


@pytest.mark.parametrize(
    ("version", "cuda", "capability"),
    [
        ("2.9.0+cu126", "12.6", "6.1"),
        ("2.7.1+cu128", "12.8", "7.5"),
        ("2.7.1+cu128", "12.8", "12.1"),
        ("2.9.0+cu128", "12.8", "8.9"),
        ("2.10.0+cu128", "12.8", "7.0"),
        ("2.10.0+cu128", "12.8", "12.1"),
        ("2.14.0", "13.0", "10.3"),
        ("2.14.0", "13.0", "13.0"),
        ("2.9.0a0+git1234567", "12.4", "12.0"),
        ("2.6.0+cu124", "12.4", "9.0"),
        ("2.6.0+cu124", "12.4", "5.2"),
    ],
)
def test_code_of_the_same_major_and_a_lower_minor_number_runs(
    version: str, cuda: str, capability: str
) -> None:
    check = only(with_gpu(version, cuda, capability), "torch-without-code-for-gpu")

    assert check.status is Status.PASSED


def test_of_a_build_that_is_no_wheel_only_what_the_compiler_dropped_is_known() -> None:
    base = with_gpu("2.10.0", "12.8", "6.1")
    conda = tuple(
        msgspec.structs.replace(library, owner="libtorch 2.10.0")
        for library in base.probes["torch"].libraries
    )

    assert only(base, "torch-without-code-for-gpu").status is Status.FAILED
    subject = with_probe(base, "torch", libraries=conda)
    assert only(subject, "torch-without-code-for-gpu").status is Status.PASSED


def test_wheels_for_arm_are_compiled_for_other_gpus() -> None:
    code = "torch-without-code-for-gpu"

    assert only(with_gpu("2.9.0+cu130", "13.0", "11.0", "aarch64"), code).status is Status.PASSED
    assert only(with_gpu("2.9.0+cu130", "13.0", "11.0"), code).status is Status.FAILED
    assert only(with_gpu("2.9.0+cu130", "13.0", "7.5", "aarch64"), code).status is Status.FAILED
    assert only(with_gpu("2.7.1+cu128", "12.8", "8.0", "aarch64"), code).status is Status.FAILED


def test_wheels_for_windows_had_code_for_more_gpus() -> None:
    """Torch 2.7 for CUDA 12.8: from Maxwell on, and on Linux from Turing on."""
    subject = with_gpu("2.7.1+cu128", "12.8", "6.1")

    assert only(subject, "torch-without-code-for-gpu").status is Status.FAILED
    subject = with_probe(subject, "host", facts={"machine": "AMD64", "platform": "win32"})
    assert only(subject, "torch-without-code-for-gpu").status is Status.PASSED


@pytest.mark.parametrize(("cuda", "capability"), [("10.2", "6.1"), ("13.0", ""), ("of its own", "9.0")])
def test_what_is_not_known_of_a_build_or_a_gpu_is_unknown(cuda: str, capability: str) -> None:
    check = only(with_gpu("2.9.0", cuda, capability), "torch-without-code-for-gpu")

    assert check.status is Status.UNKNOWN


def test_a_build_for_the_cpu_beside_amds_gpu_is_told() -> None:
    base = report("mi300x-eight-gpus")
    subject = with_probe(base, "torch", version="2.9.0+cpu", facts={"built_for": "cpu"})

    assert "there is an AMD GPU" in only(subject, "cpu-build-with-gpu").message
    for target, status in (
        ("gfx1036", Status.PASSED),
        ("gfx90c", Status.PASSED),
        ("gfx1100", Status.FAILED),
    ):
        gpu = Device("rocm", 0, "Radeon", capability=target)
        assert only(with_probe(subject, "rocm", devices=(gpu,)), "cpu-build-with-gpu").status is status
    denied = (Reason("permission-denied", "/dev/kfd exists, but this user may not open it"),)
    closed = with_probe(subject, "rocm", reasons=denied)
    assert only(closed, "cpu-build-with-gpu").status is Status.PASSED
    assert only(base, "cpu-build-with-gpu").status is Status.PASSED


def test_builds_for_different_devices_do_not_go_together() -> None:
    row = {"package": "torchvision", "version": "0.21.0+cpu", "wanted": "2.6.0"}
    base = report("hgx-h100-eight-gpus")

    unlike = with_probe(base, "torch", facts={"partners": [row]})
    alike = with_probe(base, "torch", facts={"partners": [{**row, "version": "0.21.0"}]})

    assert "builds for different devices" in only(unlike, "torch-extension-mismatch").message
    assert only(alike, "torch-extension-mismatch").status is Status.PASSED


@pytest.mark.parametrize(
    ("package", "version", "status"),
    [
        ("torchvision", "0.21.0+cu118", Status.FAILED),
        ("torchvision", "0.21.0+cu124", Status.PASSED),
        ("torchvision", "0.15.2+cu124", Status.FAILED),
        ("torchaudio", "2.6.0+cu124", Status.FAILED),
    ],
)
def test_torchvision_takes_another_minor_version_of_cuda(package: str, version: str, status: Status) -> None:
    row = {"package": package, "version": version, "wanted": "2.6.0"}
    facts: dict[str, Any] = {"partners": [row]}
    subject = with_probe(report("hgx-h100-eight-gpus"), "torch", version="2.6.0+cu126", facts=facts)

    assert only(subject, "torch-extension-mismatch").status is status


def test_without_a_gpu_a_missing_compiler_is_a_note() -> None:
    code, base = "compiler-missing-for-torch-compile", report("stale-conda-workstation")
    without = with_probe(base, "nvidia", devices=())
    clang = {"CC": "/opt/llvm/bin/clang", "CXX": "/opt/llvm/bin/clang++"}
    chosen = with_probe(base, "compilers", facts={"environment": clang})

    assert only(base, code).severity is Severity.WARNING
    assert only(base, code).command == "apt-get install -y gcc g++ python3-dev"
    assert only(without, code).severity is Severity.NOTE
    assert only(chosen, code).status is Status.PASSED


def test_torch_compile_on_the_processor_needs_g_plus_plus_and_no_triton() -> None:
    code = "compiler-missing-for-torch-compile"
    alone = with_probe(report("stale-conda-workstation"), "triton", version="", facts={})

    def having(*names: str) -> Check:
        rows = [{"name": name, "path": f"/usr/bin/{name}"} for name in names]
        return only(with_probe(alone, "compilers", facts={"compilers": rows}), code)

    assert having("gcc", "cc").message.endswith("g++, which torch.compile needs, is not on PATH")
    assert having("gcc").severity is Severity.NOTE
    assert having("g++").status is Status.PASSED


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        ({"numpy": "2.1.0", "torch": "2.2.2"}, Status.FAILED),
        ({"numpy": "2.1.0", "torch": "2.3.0+cpu"}, Status.PASSED),
        ({"numpy": "1.26.4", "torch": "2.2.2"}, Status.PASSED),
        ({"numpy": "2.0.0rc1", "pandas": "2.1.4"}, Status.FAILED),
        ({"numpy": "of no version", "torch": "2.2.2"}, Status.PASSED),
        ({"numpy": "2.1.0", "torch": "of no version"}, Status.PASSED),
    ],
)
def test_numpy_2_goes_with_what_was_compiled_for_it(versions: dict[str, str], status: Status) -> None:
    assert only(with_packages(report("cloud-vm-recorded"), **versions), "numpy-abi").status is status


def test_on_windows_torch_goes_with_numpy_2_later() -> None:
    subject = with_packages(report("cloud-vm-recorded"), numpy="2.1.0", torch="2.3.1")

    assert only(subject, "numpy-abi").status is Status.PASSED
    windows = with_probe(subject, "host", facts={"platform": "win32"})
    assert "needs 2.4.1 or newer" in only(windows, "numpy-abi").message


@pytest.mark.parametrize(
    ("host", "versions", "said"),
    [
        ("proxmox-kvm64", {"numpy": "2.4.0"}, "numpy 2.4.0 needs "),
        ("proxmox-kvm64", {"jaxlib": "0.7.0"}, "jaxlib 0.7.0 needs avx"),
        ("ivy-bridge-desktop", {"jaxlib": "0.12.0.1"}, "jaxlib 0.12.0.1 needs avx2"),
        ("ivy-bridge-desktop", {"tensorflow": "2.4.0"}, "tensorflow 2.4.0 needs avx2"),
        ("proxmox-kvm64", {"tensorflow": "2.4.0"}, "tensorflow 2.4.0 needs avx,"),
        ("ivy-bridge-desktop", {"duckdb": "2.0.1"}, "duckdb 2.0.1 needs avx2"),
        ("ivy-bridge-desktop", {"polars_runtime_32": "1.36.0"}, "polars-runtime-32 1.36.0 needs"),
    ],
)
def test_a_wheel_for_a_newer_processor_is_an_error(host: str, versions: dict[str, str], said: str) -> None:
    (check,) = checks(with_packages(report(host), **versions), "wheel-needs-newer-cpu")

    assert check.message.startswith(said)


@pytest.mark.parametrize(
    ("host", "versions"),
    [
        ("ivy-bridge-desktop", {"tensorflow": "2.16.1", "numpy": "2.4.0", "jaxlib": "0.7.0"}),
        ("ivy-bridge-desktop", {"polars_runtime_32": "1.36.0", "polars_runtime_compat": "1.36.0"}),
        ("proxmox-kvm64", {"numpy": "2.3.5", "torch": "2.9.0"}),
        ("alder-lake-hybrid", {"polars": "1.30.0", "pyarrow": "20.0.0"}),
        ("raspberry-pi-5", {"numpy": "2.4.0", "tensorflow": "2.18.0"}),
    ],
)
def test_a_wheel_that_this_processor_runs_is_no_alarm(host: str, versions: dict[str, str]) -> None:
    subject = with_packages(report(host), **versions)

    assert only(subject, "wheel-needs-newer-cpu").status in (Status.PASSED, Status.SKIPPED)


@pytest.mark.parametrize(
    ("versions", "command"),
    [
        # Both write the folder polars: the second over the first leaves neither when one is uninstalled.
        ({"polars": "1.33.1"}, " uninstall polars && "),
        ({"polars": "1.33.1"}, " install polars-lts-cpu==1.33.1"),
        (
            {"polars": "1.35.1", "polars_runtime_32": "1.35.1"},
            " install 'polars[rtcompat]==1.35.1'",
        ),
    ],
)
def test_polars_for_older_processors_is_installed_as_its_release_wants_it(
    versions: dict[str, str], command: str
) -> None:
    subject = with_packages(report("ivy-bridge-desktop"), **versions)

    assert command in only(subject, "wheel-needs-newer-cpu").command


def test_wheels_for_glibc_do_not_run_on_musl() -> None:
    needed = {"glibc_needed": {"torch": "2.28"}}
    alpine = with_probe(report("alpine-container"), "packages", facts=needed)
    newer = with_probe(report("cloud-vm-recorded"), "packages", facts=needed)
    untold = with_probe(newer, "host", facts={"libc_version": None})

    assert "this machine has musl 1.2.5" in only(alpine, "glibc-older-than-wheel").message
    assert only(newer, "glibc-older-than-wheel").status is Status.PASSED
    assert only(untold, "glibc-older-than-wheel").status is Status.UNKNOWN
    assert only(report("macbook-m3"), "glibc-older-than-wheel").status is Status.SKIPPED


# ---- packages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("example", "severity"),
    [
        ("nvidia/cudnn/lib/libcudnn.so.9", Severity.ERROR),
        ("cuda/bindings/driver.pyd", Severity.ERROR),
        ("cuda/bindings/__init__.py", Severity.WARNING),
        ("tests/__init__.py", Severity.NOTE),
        ("LICENSE", Severity.NOTE),
    ],
)
def test_how_bad_a_shared_file_is_goes_by_what_it_is(example: str, severity: Severity) -> None:
    row = {"first": "one", "second": "two", "files": 1, "differing": 1, "example": example}
    warning = Reason("file-owned-twice", "one and two own it", "uninstall both")
    subject = with_probe(
        report("hgx-h100-eight-gpus"), "packages", facts={"owned_twice": [row]}, warnings=(warning,)
    )

    assert only(subject, "wheel-files-overlap").severity is severity


def test_a_name_from_a_report_is_quoted_in_the_command() -> None:
    row = {"name": "x; rm -rf ~", "version": "1", "files": 3, "example": "/site/x.so"}
    subject = with_probe(report("hgx-h100-eight-gpus"), "packages", facts={"missing_files": [row]})

    check = only(subject, "wheel-files-missing")

    assert check.command.endswith("--no-deps 'x; rm -rf ~==1'")
    assert "/site/x.so (and 2 more of its libraries)" in check.message


def test_an_environment_of_uv_is_mended_with_uv() -> None:
    base = with_probe(report("cluster-modules-node"), "python", facts={"manager": "uv"})

    command = only(base, "wheel-files-missing").command

    assert command == (
        "uv pip install --python ~/venv/bin/python --reinstall-package nvidia-nvtx-cu12"
        " --no-deps nvidia-nvtx-cu12==12.8.90"
    )


def test_the_packages_that_torch_was_not_built_for_are_the_ones_to_uninstall() -> None:
    check = only(report("broken-environment"), "cuda-mixed-majors")

    removed, _, restored = check.command.partition(" && ")
    assert removed.endswith("pip uninstall nvidia-cublas nvidia-cuda-runtime nvidia-cudnn-cu13")
    # Both have libcudnn.so.9, which goes with the first of them.
    assert "--force-reinstall --no-deps nvidia-cudnn-cu12==" in restored
    assert check.hint.startswith("torch is built for CUDA 12")
    assert check.severity is Severity.ERROR and "libcudnn.so.9" in check.message


def test_the_user_folder_is_meant_for_the_systems_python() -> None:
    base = report("stale-conda-workstation")
    numpy = msgspec.structs.replace(base.probes["numpy"], warnings=())
    base = msgspec.structs.replace(base, probes={**base.probes, "numpy": numpy})
    system = with_probe(base, "python", facts={"manager": "system"})

    assert only(base, "user-site-shadows").status is Status.FAILED
    assert only(system, "user-site-shadows").status is Status.PASSED


def test_a_cudnn_that_nobody_loads_may_lack_parts() -> None:
    base = report("broken-environment")
    libraries = tuple(
        msgspec.structs.replace(library, wins=False) for library in base.probes["cudnn"].libraries
    )
    subject = with_probe(base, "cudnn", libraries=libraries)

    assert only(base, "cudnn-sublibrary-missing").severity is Severity.ERROR
    assert only(subject, "cudnn-sublibrary-missing").severity is Severity.NOTE


def test_a_warning_that_no_hazard_claims_is_still_told() -> None:
    warning = Reason("a-new-code", "something new is wrong")
    subject = with_probe(report("hgx-h100-eight-gpus"), "cpu", warnings=(warning,))

    (check,) = checks(subject, "other-warning")

    assert check.message == "something new is wrong"
    assert check.evidence == {"cpu.warnings.code": ["a-new-code"]}

    both = with_probe(subject, "memory", warnings=(warning,))
    (check,) = checks(both, "other-warning")
    assert list(check.evidence) == ["cpu.warnings.code", "memory.warnings.code"]


# ---- numbers that are known to be wrong ------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "status", "words"),
    [
        ({"numpy": "2.3.0"}, Status.FAILED, "matmul is left unwritten (numpy#29164)"),
        ({"numpy": "2.3.1"}, Status.PASSED, ""),
        ({"numpy": "2.2.6"}, Status.PASSED, ""),
        ({"torch": "2.13.0"}, Status.PASSED, ""),
    ],
)
def test_a_release_with_wrong_numbers_is_reported_and_its_neighbours_are_not(
    versions: dict[str, str], status: Status, words: str
) -> None:
    check = only(with_packages(report("cloud-vm-recorded"), **versions), "known-wrong-numbers")

    assert check.status is status
    assert words in check.message
    if words:
        assert check.command.endswith("'numpy>=2.3.1'") and check.severity is Severity.WARNING


def test_attention_that_torch_would_take_is_reported_unless_a_variable_switches_it_off() -> None:
    node = with_packages(report("hgx-h100-eight-gpus"), torch="2.13.0", nvidia_cudnn_cu13="9.20.0")
    node = with_probe(node, "cudnn", version="9.20.0")
    node = with_probe(node, "torch", version="2.13.0+cu130")
    (check,) = (c for c in checks(node, "known-wrong-numbers") if "torch" in c.message)

    assert check.status is Status.FAILED and check.severity is Severity.WARNING
    assert "(pytorch#196678)" in check.message
    # torch 2.9 does not take cuDNN's attention unasked.
    older = with_probe(with_packages(node, torch="2.9.1"), "torch", version="2.9.1+cu130")
    assert not [c for c in checks(older, "known-wrong-numbers") if "#196678" in c.message]
    newer = with_probe(node, "cudnn", version="9.26.0")
    assert not [c for c in checks(newer, "known-wrong-numbers") if "#196678" in c.message]


def test_a_report_names_the_distribution_that_is_installed() -> None:
    node = with_packages(report("hgx-h100-eight-gpus"), flash_attn_4="4.0.0b5")
    found = [check.message for check in checks(node, "known-wrong-numbers")]
    assert any(message.startswith("flash-attn-4 4.0.0b5 is known to compute wrong") for message in found)


def test_a_library_that_is_not_a_package_is_named_with_its_version() -> None:
    node = with_probe(report("hgx-h100-eight-gpus"), "cudnn", version="9.26.0")
    (check,) = (c for c in checks(node, "known-wrong-numbers") if "cudnn-frontend#1072" in c.message)
    assert check.message.startswith("cudnn 9.26.0 is known") and check.evidence == {"cudnn.version": "9.26.0"}


def test_rare_values_on_a_cpu_are_a_note() -> None:
    check = only(with_packages(report("cloud-vm-recorded"), torch="2.5.1"), "known-wrong-numbers")
    assert check.severity is Severity.NOTE and "pytorch#141128" in check.message


def test_a_report_without_packages_has_no_answer_about_numbers() -> None:
    assert only(report("alpine-container"), "known-wrong-numbers").status is Status.UNKNOWN
