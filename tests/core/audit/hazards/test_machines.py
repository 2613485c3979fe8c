"""Every hazard on a recorded machine or saved report that has it, and on one that lacks it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from mlbackends.audit import catalogue
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.model.audit import Check, Status

if TYPE_CHECKING:
    from mlbackends.model.records import Report

TESTS = Path(__file__).resolve().parents[3]
#: By code: a machine that has the hazard, and one that lacks it. Values of NVML are in saved reports alone.
#: "": no machine has it; another test of this folder makes a report that has it.
MACHINES = {
    "address-space-limit": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "affinity-one-cpu": ("untuned-slurm-node", "slurm-job"),
    "clock-not-synchronised": ("untuned-slurm-node", "macbook-m3"),
    "clock-source-slow": ("untuned-slurm-node", "graviton3-ec2"),
    "compilation-off": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "compiler-missing-for-torch-compile": ("stale-conda-workstation", "ci-leftovers"),
    "container-lost-devices": ("docker-lost-gpu.json", "docker-geforce-compat"),
    "cpu-boost-off": ("untuned-slurm-node", "alder-lake-hybrid"),
    "cpu-build-with-gpu": ("stale-conda-workstation", "hgx-h100-eight-gpus"),
    "cpu-count-too-high": ("slurm-job", "zen4-two-sockets"),
    "cpu-frequency-capped": ("untuned-slurm-node", "alder-lake-hybrid"),
    "cpu-governor": ("untuned-slurm-node", "alder-lake-hybrid"),
    "cpu-mitigation-slows-gather": ("icelake-ec2", "cloud-vm-recorded"),
    "cpu-quota-below-threads": ("mig-pod", "proxmox-kvm64"),
    "cpu-throttled": ("docker-cgroup1", "proxmox-kvm64"),
    "cublas-not-deterministic": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "cuda-driver-library-missing": ("mig-pod", "slurm-job"),
    "cuda-launch-blocking": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "cuda-library-contradicts": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "cuda-mixed-majors": ("broken-environment", "cluster-modules-node"),
    "cuda-stub-library": ("broken-environment", "hgx-h100-eight-gpus"),
    "cuda-toolkits-differ": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "cuda-visible-devices": ("broken-environment", "slurm-job"),
    "cudnn-older-than-pinned": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "cudnn-sublibrary-mismatch": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "cudnn-sublibrary-missing": ("broken-environment", "cluster-modules-node"),
    "debugging-allocator": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "debugging-preload": ("ci-leftovers", "broken-environment"),
    "file-system-read-only": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "glibc-older-than-wheel": ("cluster-modules-node", "cloud-vm-recorded"),
    "hypervisor-hides-avx2": ("proxmox-kvm64", "ivy-bridge-desktop"),
    "intel-gpu-not-accessible": ("arc-desktop-no-render", "alder-lake-hybrid"),
    "isa-beyond-hardware": ("broken-environment", "ci-leftovers"),
    "isa-capped": ("ci-leftovers", "icelake-ec2"),
    "kmp-duplicate-lib-ok": ("stale-conda-workstation", "broken-environment"),
    "ld-library-path-shadows-wheels": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "ld-preload-missing": ("broken-environment", "ci-leftovers"),
    "library-broken": ("broken-environment", "z15-lpar"),
    "library-logging": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "known-wrong-numbers": ("stale-conda-workstation", "cloud-vm-recorded"),
    "libstdcxx-older-than-needed": ("cluster-modules-node", "stale-conda-workstation"),
    "locked-memory-limit": ("untuned-slurm-node", "ci-leftovers"),
    "memory-faulty": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "memory-limit-below-machine": ("nested-cgroup2", "alpine-container"),
    "mkl-cbwr": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "mpi-launcher-of-another": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "mps-fallback": ("macbook-m3", "ci-leftovers"),
    "musl-libc": ("alpine-container", "cloud-vm-recorded"),
    "nccl-leftovers": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "nfs-soft-mount": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "nnpack-cache-hidden": ("kvm-guest-without-l3", "icelake-ec2"),
    "numa-balancing": ("slurm-job", "hgx-h100-eight-gpus"),
    "numpy-abi": ("stale-conda-workstation", "macbook-m3"),
    "nvidia-compat-library": ("docker-geforce-compat", "hgx-h100-eight-gpus"),
    "nvidia-compute-prohibited": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "nvidia-device-nodes-missing": ("broken-environment", "docker-geforce-compat"),
    "nvidia-device-order": ("gpu-server-degraded", "hgx-h100-eight-gpus"),
    "nvidia-driver-older-than-runtime": ("broken-environment", "hgx-h100-eight-gpus"),
    "nvidia-ecc-errors": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "nvidia-fabric-manager": ("hgx-h100-failing.json", "hgx-h100-eight-gpus"),
    "nvidia-gpu-excluded": ("gpu-server-degraded", "hgx-h100-eight-gpus"),
    "nvidia-gpu-lost": ("hgx-h100-failing.json", "slurm-job-mig.json"),
    "nvidia-kernel-library-mismatch": ("broken-environment", "docker-geforce-compat"),
    "nvidia-mig-visible-devices": ("slurm-job-mig.json", "mig-pod"),
    "nvidia-mode-change-pending": ("slurm-job-mig.json", "hgx-h100-sound.json"),
    "nvidia-module-does-not-fit": ("gpu-server-degraded", "grace-hopper"),
    "nvidia-no-driver": ("", "zen2-desktop-nouveau"),
    "nvidia-nvlink-down": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "nvidia-persistence-off": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "nvidia-row-remap": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "nvidia-throttled": ("hgx-h100-failing.json", "hgx-h100-sound.json"),
    "omp-one-thread": ("ci-leftovers", "slurm-job"),
    "open-files-limit": ("untuned-slurm-node", "ivy-bridge-desktop"),
    "openmp-two-runtimes": ("", "stale-conda-workstation"),
    "other-environment-active": ("broken-environment", "stale-conda-workstation"),
    "other-warning": ("", "hgx-h100-eight-gpus"),
    "overcommit-never": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "package-cannot-be-imported": ("", "zen4-two-sockets"),
    "package-falls-back": ("", "hgx-h100-eight-gpus"),
    "package-files-changed": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "package-hidden": ("cluster-modules-node", "stale-conda-workstation"),
    "package-installed-twice": ("broken-environment", "cluster-modules-node"),
    "packages-do-not-fit": ("", "hgx-h100-eight-gpus"),
    "pcie-access-control": ("gpu-server-degraded", "hgx-h100-eight-gpus"),
    "pcie-width-degraded": ("gpu-server-degraded", "hgx-h100-eight-gpus"),
    "rdma-port-down": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "rdma-port-errors": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "rdma-port-slow": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "requirements-not-met": ("broken-environment", "hgx-h100-eight-gpus"),
    "python-path-of-other-version": ("broken-environment", "cluster-modules-node"),
    "rocm-gpus-forbidden": ("rocm-pod-forbidden", "podman-rocm-no-access"),
    "rocm-hsa-override": ("podman-rocm-no-access", "mi300x-eight-gpus"),
    "rocm-kfd-not-accessible": ("podman-rocm-no-access", "mi300x-eight-gpus"),
    "rocm-library-lacks-target": ("podman-rocm-no-access", "mi300x-eight-gpus"),
    "rocm-visible-devices": ("podman-rocm-no-access", "mi300x-eight-gpus"),
    "rosetta-translated": ("macbook-rosetta", "macbook-m3"),
    "slurm-node-differs": ("untuned-slurm-node", "hgx-h100-eight-gpus"),
    "spinning-under-quota": ("proxmox-kvm64", "nested-cgroup2"),
    "tf32-override": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "thread-binding": ("ci-leftovers", "hgx-h100-eight-gpus"),
    "thread-limit-low": ("untuned-slurm-node", "docker-cgroup1"),
    "threads-exceed-cpus": ("untuned-slurm-node", "slurm-job"),
    "torch-extension-mismatch": ("stale-conda-workstation", "hgx-h100-eight-gpus"),
    "torch-without-code-for-gpu": ("", "macbook-m3"),
    "transparent-huge-pages": ("untuned-slurm-node", "icelake-ec2"),
    "uninstall-leftovers": ("stale-conda-workstation", "hgx-h100-eight-gpus"),
    "user-site-shadows": ("stale-conda-workstation", "cluster-modules-node"),
    "variable-invalid": ("icelake-ec2", "hgx-h100-eight-gpus"),
    "wheel-files-missing": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "wheel-files-overlap": ("stale-conda-workstation", "broken-environment"),
    "wheel-needs-newer-cpu": ("cluster-modules-node", "hgx-h100-eight-gpus"),
    "wsl-first-version": ("wsl1-laptop", "wsl2-nvidia"),
    "wsl-linux-driver": ("wsl2-nvidia", "broken-environment"),
}
ON_NVML = (
    *("nvidia-compute-prohibited", "nvidia-ecc-errors", "nvidia-gpu-lost", "nvidia-row-remap"),
    *("nvidia-mode-change-pending", "nvidia-nvlink-down", "nvidia-persistence-off"),
    "nvidia-throttled",
)


@cache
def machine(name: str) -> Report:
    is_report = name.endswith(".json")
    return report_of(str(TESTS / (f"reports/{name}" if is_report else f"hosts/{name}.machine")))


def checks(report: Report, code: str) -> tuple[Check, ...]:
    return examine(report, only=(code,)).checks


def statuses(report: Report, code: str) -> set[Status]:
    return {check.status for check in checks(report, code)}


@pytest.mark.parametrize("code", MACHINES)
def test_the_first_machine_has_it_and_the_second_lacks_it(code: str) -> None:
    has, lacks = MACHINES[code]

    for check in checks(machine(has), code) if has else ():
        assert check.status is Status.FAILED
        assert check.evidence and check.why and check.hint
        assert check.message and check.message[-1] not in ".:"
    assert statuses(machine(lacks), code) <= {Status.PASSED, Status.SKIPPED}


def test_a_report_without_the_probes_that_it_needs_is_unknown() -> None:
    empty = msgspec.structs.replace(machine("ci-leftovers"), probes={})

    for code in catalogue.codes():
        if catalogue.load(code).reads:
            assert statuses(empty, code) == {Status.UNKNOWN}, code


def test_values_of_nvml_are_unknown_without_it() -> None:
    for code in ON_NVML:
        (check,) = checks(machine("hgx-h100-eight-gpus"), code)

        assert check.status is Status.UNKNOWN, code
        assert "NVML was not asked" in check.message, code


def test_no_hazard_of_devices_is_on_a_machine_without_them_or_a_healthy_one() -> None:
    for code in (code for code in MACHINES if code.startswith(("cuda-d", "nvidia", "rocm", "pcie"))):
        assert statuses(machine("epyc-eight-nodes"), code) <= {Status.PASSED, Status.SKIPPED}, code
        assert Status.FAILED not in statuses(machine("hgx-h100-sound.json"), code), code


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("arc-desktop-no-render", "intel-gpu-not-accessible", ["GPU 0-1"]),
        ("podman-rocm-no-access", "rocm-kfd-not-accessible", ["/dev/kfd", "/dev/dri/renderD128"]),
        ("stale-conda-workstation", "user-site-shadows", ["numpy 2.0.2", "triton"]),
    ],
)
def test_what_the_same_remedy_fixes_is_one_finding(name: str, code: str, words: list[str]) -> None:
    (check,) = checks(machine(name), code)

    assert all(word in check.message for word in words)


def test_a_requirement_that_another_hazard_reports_is_not_reported_again() -> None:
    subject = machine("stale-conda-workstation")

    (check,) = checks(subject, "requirements-not-met")

    assert "numpy" not in check.message and "torchvision" not in check.message
    assert "jaxlib<=0.4.30" in check.command
    assert statuses(subject, "numpy-abi") == statuses(subject, "torch-extension-mismatch") == {Status.FAILED}
