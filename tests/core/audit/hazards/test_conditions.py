"""Hazards that are conditions and texts: a report that has one, and its neighbours that lack it."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Severity, Status
from mlbackends.model.records import SCHEMA, Device, Library, Presence, ProbeReport, Report

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE


def told(version: str = "", **fields: Any) -> ProbeReport:
    """Return what a probe reports; fields that no probe has are its facts."""
    names = [name for name in fields if name in ProbeReport.__struct_fields__]
    own = {name: fields.pop(name) for name in names}
    return ProbeReport(own.pop("presence", Presence.FOUND), version=version, facts=fields, **own)


def report(**probes: ProbeReport) -> Report:
    probes = {"host": told(platform="linux"), "environment": told(variables={}), **probes}
    return Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)


def gpu(capability: str = "9.0", name: str = "NVIDIA H100") -> ProbeReport:
    device = Device("cuda", 0, name, Presence.LOADABLE, capability=capability)
    return told(devices=(device,), cuda_version="12.8", driver_release="570.86.15")


def compilers(*names: str) -> ProbeReport:
    return told(compilers=[{"name": name, "path": f"/usr/bin/{name}"} for name in names])


def busy(**facts: Any) -> Report:
    """Return a machine with 8 CPUs."""
    return report(limits=told(online_cpus=8, effective_cpus=8, **facts))


def variables(**values: str) -> ProbeReport:
    return told(variables=values)


def building(platform: str, *names: str, has_tools: bool | None = None, **choices: str) -> Report:
    """Return a machine with torch and these compilers."""
    found = compilers(*names)
    found.facts["environment"] = dict(choices)
    if has_tools is not None:
        found.facts["has_command_line_tools"] = has_tools
    return report(host=told(platform=platform), torch=told("2.9.0"), compilers=found)


def without_headers(has_headers: bool | None = False, **probes: ProbeReport) -> Report:
    python = told() if has_headers is None else told(has_headers=has_headers)
    return report(
        **{"nvidia": gpu(), "triton": told("3.5.0"), "compilers": compilers("gcc"), **probes},
        python=python,
    )


THROTTLED = (Reason("throttled", "the CPU quota stopped this group"),)
#: A hazard, a report, and the severity of its findings; None for none.
CASES: list[tuple[str, Report, Severity | None]] = [
    ("cpu-contended", busy(cpu_pressure=60.0, load_average=20.0), W),
    ("cpu-contended", busy(cpu_pressure=60.0, load_average=8.0), None),  # each has a CPU
    ("cpu-contended", busy(cpu_pressure=10.0, load_average=20.0), None),  # they wait for disks
    ("cpu-contended", busy(load_average=20.0, runnable_threads=14), W),  # a kernel without PSI
    ("cpu-contended", busy(load_average=20.0, runnable_threads=2), None),
    # a container that its own quota stops
    ("cpu-contended", busy(cpu_pressure=60.0, load_average=20.0, warnings=THROTTLED), None),
    ("cpu-contended", busy(process_waiting_share=0.4, process_running_threads=4), W),
    ("cpu-contended", busy(process_waiting_share=0.1, process_running_threads=4), None),
    ("cpu-contended", busy(process_waiting_share=0.4, process_running_threads=30), None),
    ("cpu-contended", report(limits=told(effective_cpus=8, process_waiting_share=0.4,
     process_running_threads=4, warnings=THROTTLED)), None),
    ("compiler-missing-for-torch-compile", building("linux", "gcc"), N),
    ("compiler-missing-for-torch-compile", building("linux", "g++"), None),
    ("compiler-missing-for-torch-compile", building("darwin", "clang++", has_tools=False), N),
    ("compiler-missing-for-torch-compile", building("darwin", "clang++", has_tools=True), None),
    ("compiler-missing-for-torch-compile", building("darwin"), None),  # an old recording
    ("compiler-missing-for-torch-compile", building("win32", "g++"), N),
    ("compiler-missing-for-torch-compile", building("win32", "cl"), None),
    ("compiler-missing-for-torch-compile", building("win32", CXX="clang-cl"), None),
    ("numpy-feature-variables", report(numpy=told("2.3.0"),
     environment=variables(NPY_DISABLE_CPU_FEATURES="AVX2", NPY_ENABLE_CPU_FEATURES="FMA3")), E),
    ("numpy-feature-variables", report(numpy=told("2.3.0"),
     environment=variables(NPY_ENABLE_CPU_FEATURES="FMA3")), None),
    ("numpy-feature-variables", report(numpy=told("2.3.0"),
     environment=variables(NPY_DISABLE_CPU_FEATURES="", NPY_ENABLE_CPU_FEATURES="FMA3")), None),
    ("python-headers-missing", without_headers(), W),
    ("python-headers-missing", without_headers(True), None),
    ("python-headers-missing", without_headers(None), None),
    ("python-headers-missing", without_headers(compilers=compilers()), None),
    ("python-headers-missing", without_headers(nvidia=told()), None),
    ("packages-do-not-fit", report(packages=told(), flash_attention=told(warnings=(Reason("conflict",
     "flashinfer-cubin is 0.6.8"),))), E),
    ("packages-do-not-fit", report(packages=told(), flash_attention=told(warnings=(Reason("conflict",
     "flash-attn is for torch 2.8"),))), W),
    ("cpu-governor", report(cpu=told(energy_preference="power"), host=told(platform="linux",
     on_battery=False)), W),
    ("cpu-governor", report(cpu=told(energy_preference="power"), host=told(platform="linux",
     on_battery=True)), None),
    *(("debugging-allocator", report(torch=told(version),
     environment=variables(PYTORCH_NO_CUDA_MEMORY_CACHING=value)), severity) for version, value,
     severity in (("2.6.0", "0", W), ("2.7.0", "0", None), ("2.6.0", "1", W), ("2.7.0", "1", W))),
]  # fmt: skip
GIB = 1 << 30


def environment_of(**versions: str) -> ProbeReport:
    return told(distributions={name.replace("_", "-"): text for name, text in versions.items()})


def hopper(torch: str, cudnn: str, capability: str = "9.0", **packages: str) -> Report:
    return report(
        torch=told(torch, cuda_version="12.8"),
        cudnn=told(cudnn),
        nvidia=gpu(capability),
        packages=environment_of(**packages),
    )


def flashinfer(nvidia: ProbeReport, toolkit: ProbeReport, version: str = "0.6.15", **parts: str) -> Report:
    package = told(packages={"flashinfer-python": version}, flashinfer_parts=parts)
    return report(flash_attention=package, nvidia=nvidia, cuda_toolkit=toolkit)


def toolkit(version: str) -> ProbeReport:
    path = f"/usr/local/cuda-{version}"
    row = {"path": path, "version": version, "nvcc": f"{path}/bin/nvcc"}
    return told(version, toolkits=[row])


def on_mac(macos: str = "13.6", built_for: str = "mps", **fields: Any) -> Report:
    mps = told(macos_version=macos, torch_needs_macos="14.0", is_translated=False, **fields)
    torch = told("2.10.0", built_for=built_for)
    return report(host=told(platform="darwin"), torch=torch, mps=mps)


def radeon(target: str, libraries: list[str], targets: list[str] | None = None, **probes: Any) -> Report:
    """Return a machine with an AMD GPU and Ollama."""
    rocm = told(
        devices=(Device("rocm", 0, capability=target),),
        targets=[target],
        ollama_folder="/usr/lib/ollama",
        ollama_libraries=libraries,
        ollama_targets=targets or [],
    )
    return report(rocm=rocm, **probes)


def windows(used: float, limit: float, **probes: ProbeReport) -> Report:
    memory = told(total_bytes=32 * GIB, committed_bytes=int(used * GIB), commit_limit_bytes=int(limit * GIB))
    memory.facts["swap_total_bytes"] = max(0, int(limit - 32) * GIB)
    return report(host=told(platform="win32"), memory=memory, **probes)


def meeting(*makers: str) -> Report:
    """Return a report in which the OpenMP runtimes of these makers meet in a process."""
    copies = tuple(
        Library("openmp", f"/site/{at}.so", facts={"runtime": maker}) for at, maker in enumerate(makers)
    )
    paths = [copy.path for copy in copies]
    warnings = (Reason("conflict", "they meet", "set OMP_NUM_THREADS"),)
    return report(openmp=told(libraries=copies, conflicting_copies=paths, warnings=warnings))


def with_docker(passes: bool | None, container: str = "none", driver: bool = True) -> Report:
    facts: dict[str, Any] = {} if passes is None else {"docker_passes_gpus": passes}
    if driver:
        facts["driver_release"] = "580.65.06"
    return report(nvidia=told(**facts), host=told(platform="linux", container=container))


def tensorflow(capability: str, *codes: str) -> Report:
    build = told("2.20.0", compute_capabilities=list(codes))
    return report(tensorflow=build, jax=told(), nvidia=gpu(capability))


def jax(version: str, capability: str) -> Report:
    plugins = {"jax-cuda12-plugin": version}
    probe = told(version, jaxlib_version=version, plugins=plugins)
    return report(tensorflow=told(), jax=probe, nvidia=gpu(capability))


def with_ggml(*folders: str) -> Report:
    """Return a machine with a libggml-base in each folder; Ollama's is not on the loader's path."""
    copies = tuple(
        Library(
            "ggml",
            f"{folder}/libggml-base.so.0",
            soname="libggml-base.so.0",
            found_by="well-known-folder" if "ollama" in folder else "ld.so.cache",
        )
        for folder in folders
    )
    return report(ggml=told(libraries=copies))


def with_jax(needed: str, system: str = "", **packages: str) -> Report:
    facts: dict[str, Any] = {"cudnn_needed": needed} if needed else {}
    probe = told("0.6.2", plugins={"jax-cuda12-plugin": "0.6.2"}, **facts)
    return report(jax=probe, cudnn=told(system), packages=environment_of(**packages))


def with_disk(free: int, total: int = 100 << 10, used_for: str = "root, home") -> Report:
    """Return a machine with a disk; its sizes are in MiB."""
    rows = [{"path": "/", "used_for": used_for, "total_bytes": total << 20}]
    return report(disks=told(file_systems=rows, free=[{"path": "/", "free_bytes": free << 20}]))


NVCC, NO_TOOLKIT = toolkit("12.8"), told(presence=Presence.ABSENT)
OLD = (Reason("too-old", "torch 2.10.0 needs macOS 14.0 for MPS; this is macOS 13.6"),)
NO_METAL = (Reason("no-device", "MTLCreateSystemDefaultDevice gave no device to this session"),)
LACKS_CUDA_12 = Reason(
    "import-failed",
    "import vllm fails: ImportError: libcudart.so.12: cannot open shared object file",
)
FOR_CUDA_12 = {"path": "/site/vllm/_C.abi3.so", "needs": "libcudart.so.12"}
TORCH = told("2.9.0+cu128", cuda_version="12.8")


def with_driver(cuda: str, *packages: str, **probes: ProbeReport) -> Report:
    nvidia = told(cuda_version=cuda, driver_release="550.144.03")
    installed = environment_of(**dict.fromkeys(packages, "1.0"))
    return report(torch=TORCH, nvidia=nvidia, packages=installed, **probes)


CASES += [
    ("ptx-newer-than-driver", with_driver("12.4", "vllm"), W),
    ("ptx-newer-than-driver", with_driver("12.8", "vllm"), None),
    ("ptx-newer-than-driver", with_driver("13.0", "vllm"), None),
    ("ptx-newer-than-driver", with_driver("12.4", "transformers"), None),
    ("ptx-newer-than-driver", with_driver("11.8", "vllm"), None),  # the driver is too old at all
    ("ptx-newer-than-driver", with_driver("12.4", "vllm", cuda_driver=told(forward_compatibility=True)),
     None),
    ("flashinfer-without-nvcc", flashinfer(gpu(), NO_TOOLKIT), W),
    ("flashinfer-without-nvcc", flashinfer(gpu(), NVCC), None),
    ("flashinfer-without-nvcc", flashinfer(gpu(), told(toolkits=[{"path": "/usr"}])), W),
    ("flashinfer-without-nvcc", flashinfer(told(), NO_TOOLKIT), None),
    ("flashinfer-without-nvcc", flashinfer(gpu(), NO_TOOLKIT, "0.2.5+cu124torch2.6"), None),
    ("flashinfer-without-nvcc", flashinfer(gpu(), NO_TOOLKIT, **{"flashinfer-jit-cache": "0.6.15+cu130"}),
     None),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("12.0"), NVCC), W),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("12.0"), toolkit("12.9")), None),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("12.0"), NVCC, "0.6.3"), None),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("12.0"), NVCC, "0.7.1"), None),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("12.1"), NVCC, "0.7.2.post1"), W),
    ("flashinfer-toolkit-too-old", flashinfer(gpu("9.0"), NVCC), None),
    ("cudnn-attention-nan", hopper("2.14.0", "9.25.1"), W),
    ("cudnn-attention-nan", hopper("2.11.0", "9.19.0"), W),
    ("cudnn-attention-nan", hopper("2.10.0", "9.19.0"), None),
    ("cudnn-attention-nan", hopper("2.12.0", "9.10.2"), None),  # torch prefers flash attention
    ("cudnn-attention-nan", hopper("2.15.0", "9.25.1"), None),
    ("cudnn-attention-nan", hopper("2.14.0", "9.26.0"), None),
    ("cudnn-attention-nan", hopper("2.14.0", "9.25.1", "8.0"), None),
    ("cudnn-attention-nan", hopper("2.14.0", "9.25.1", nvidia_cudnn_cu12="9.26.0.51"), None),
    ("cudnn-attention-nan", hopper("2.14.0", "9.26.0", nvidia_cudnn_cu12="9.20.0.48"), W),
    ("cudnn-attention-nan", hopper("2.14.0", "9.25.1", "10.0"), None),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.20.0", "10.0"), E),
    ("cudnn-decode-wrong", hopper("2.11.0", "9.19.0", "10.3"), E),
    ("cudnn-decode-wrong", hopper("2.14.1", "9.20.0", "10.0"), None),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.24.1", "10.0"), None),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.25.1", "10.0"), None),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.20.0", "9.0"), None),
    ("cudnn-decode-wrong", hopper("2.8.0", "9.20.0", "10.0"), None),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.26.0", "10.0", nvidia_cudnn_cu12="9.20.0.48"), E),
    ("cudnn-decode-wrong", hopper("2.13.0", "9.20.0", "10.0", nvidia_cudnn_cu12="9.24.1.5"), None),
    ("cudnn-older-than-jax-needs", with_jax("9.8", system="9.1.0"), E),
    ("cudnn-older-than-jax-needs", with_jax("9.8", system="9.8.0"), None),
    ("cudnn-older-than-jax-needs", with_jax("", system="9.1.0"), None),
    ("cudnn-older-than-jax-needs", with_jax("9.8", system="8.9.7", nvidia_cudnn_cu12="9.10.2"), None),
    ("cudnn-older-than-jax-needs", with_jax("9.8", system="9.10.2", nvidia_cudnn_cu12="9.1.0.70"), E),
    # torch's, for CUDA 13
    ("cudnn-older-than-jax-needs", with_jax("9.8", nvidia_cudnn_cu12="9.10.2", nvidia_cudnn_cu13="9.1.0"),
     None),
    *(("setuptools-without-pkg-resources", report(packages=environment_of(**versions)),
     severity) for versions, severity in (({"setuptools": "82.0.0", "tensorboard": "2.20.0"}, W),
     ({"setuptools": "81.0.0", "tensorboard": "2.20.0"}, None), ({"setuptools": "82.0.0",
     "tensorboard": "2.21.0"}, None), ({"setuptools": "82.0.1", "webrtcvad": "2.0.10"}, E),
     ({"setuptools": "82.0.1"}, None), ({"tensorboard": "2.20.0"}, None))),
    ("xla-without-code-for-blackwell", tensorflow("12.0", "sm_60", "sm_89", "compute_90"), E),
    ("xla-without-code-for-blackwell", tensorflow("12.0", "sm_90", "sm_120"), None),
    ("xla-without-code-for-blackwell", tensorflow("9.0", "sm_60", "compute_90"), None),
    ("xla-without-code-for-blackwell", tensorflow("12.0"), None),
    ("torchcodec-without-ffmpeg", report(torch=told("2.9.0", missing_ffmpeg=["libavutil.so.59"])), E),
    ("torchcodec-without-ffmpeg", report(torch=told("2.9.0")), None),
    ("xla-without-code-for-blackwell", jax("0.4.37", "12.0"), E),
    ("xla-without-code-for-blackwell", jax("0.4.38", "12.0"), None),
    ("xla-without-code-for-blackwell", jax("0.4.37", "9.0"), None),
    ("ggml-builds-differ", with_ggml("/usr/local/lib", "/usr/lib"), W),
    ("ggml-builds-differ", with_ggml("/usr/local/lib"), None),
    ("ggml-builds-differ", with_ggml("/usr/lib", "/usr/lib/ollama"), None),
    (
        "torch-extension-mismatch",
        report(
            torch=told("2.11.0", cuda_version="13.0", other_cuda_extensions=[FOR_CUDA_12]),
            vllm=told("0.21.0", imports={"vllm": LACKS_CUDA_12.message}, reasons=(LACKS_CUDA_12,)),
        ),
        None,  # package-cannot-be-imported has it
    ),
    ("packages-do-not-fit", report(packages=told(), flash_attention=told(warnings=(Reason("conflict",
     "flashinfer-cubin is 0.6.8"),),
     imports={"flashinfer": "import flashinfer fails: RuntimeError: it does not match"})), None),
    ("disk-full", with_disk(900), W),
    ("disk-full", with_disk(20), E),
    ("disk-full", with_disk(5000), None),
    ("disk-full", with_disk(500, total=512), None),
    ("disk-full", with_disk(0, used_for="root"), None),  # an image that is mounted read-only
    ("torch-device-wheel-missing", report(torch=told("2.13.0+rocm10.0.0", lacks_device_wheel=True)), E),
    ("torch-extension-mismatch", report(torch=told("2.11.0", cuda_version="13.0",
     other_cuda_extensions=[FOR_CUDA_12])), E),
    ("torch-extension-mismatch", report(torch=told("2.11.0", cuda_version="13.0")), None),
    ("torch-extension-mismatch", report(torch=told("2.15.0", cuda_version="13.2",
     other_cuda_extensions=[{"path": "/venv/site-packages/xformers/_C.so", "needs": "libcudart.so.12"}]),
     xformers=told("0.0.35", warnings=(Reason("conflict", "xformers is for torch 2.10"),))), None),
    ("torch-device-wheel-missing", report(torch=told("2.13.0+rocm10.0.0")), None),
    *(("triton-cache-on-network", report(triton=told("3.5.0", cache_file_system=kind),
     environment=variables(**values)), severity) for kind, values, severity in (("nfs4", {}, N), ("nfs4",
     {"LOCAL_WORLD_SIZE": "8"}, W), ("nfs4", {"LOCAL_WORLD_SIZE": "1"}, N), ("fuse.juicefs", {}, N),
     ("fuse.squashfuse", {}, None), ("ext4", {"LOCAL_WORLD_SIZE": "8"}, None))),
    *(("triton-windows-does-not-fit", report(torch=told(torch), nvidia=gpu(capability),
     packages=environment_of(triton_windows=triton)), severity) for torch, triton, capability,
     severity in (("2.8.0+cu128", "3.4.0.post20", "8.6", None), ("2.8.0+cu128", "3.3.1.post19", "8.6", W),
     ("2.8.0+cu128", "3.5.0.post21", "8.6", W), ("2.8.0+cu128", "3.2.0.post21", "8.6", W),
     ("2.8.0+cu128", "3.2.0.post21", "7.5", None),  # the last that supports Turing
     ("2.8.0+cu128", "3.5.0.post21", "7.5", W), ("2.9.1", "3.5.1.post22", "8.6", None),
     ("2.11.0", "3.5.1.post22", "8.6", W), ("2.12.0", "3.6.0.post26", "8.6", W),
     ("2.13.0", "3.7.1.post1", "8.6", None))),
    ("openvino-rounds-to-bf16", report(cpu=told(features=["avx512_bf16"]),
     packages=environment_of(openvino="2025.4")), N),
    ("openvino-rounds-to-bf16", report(cpu=told(features=["avx512f"]),
     packages=environment_of(openvino="2025.4")), None),
    ("openvino-rounds-to-bf16", report(cpu=told(features=["amx_bf16"]), packages=environment_of()), None),
    ("mps-unavailable", on_mac(warnings=OLD), W),
    ("mps-unavailable", on_mac("15.1"), None),
    ("mps-unavailable", on_mac("26.0", reasons=NO_METAL), W),
    ("mps-unavailable", on_mac(built_for="cpu", warnings=OLD), None),
    ("nvidia-docker-without-gpus", with_docker(False), N),
    ("nvidia-docker-without-gpus", with_docker(True), None),
    ("nvidia-docker-without-gpus", with_docker(None), None),
    ("nvidia-docker-without-gpus", with_docker(False, "docker"), None),
    ("nvidia-docker-without-gpus", with_docker(False, driver=False), None),
    ("ollama-without-rocm", radeon("gfx1100", ["cuda_v12"]), W),
    ("ollama-without-rocm", radeon("gfx1100", ["cuda_v12", "rocm"]), None),
    ("ollama-without-rocm", radeon("gfx1036", ["cuda_v12"]), None),
    ("ollama-without-rocm", radeon("gfx1100", ["cuda_v13", "vulkan"]), None),
    ("ollama-without-rocm", radeon("gfx1100", ["none"], nvidia=gpu()), None),
    ("ollama-without-rocm", radeon("gfx1151", ["rocm"], ["gfx1100", "gfx1201"]), W),
    ("ollama-without-rocm", radeon("gfx1151", ["rocm"], ["gfx1100", "gfx1151"]), None),
    ("ollama-without-rocm", radeon("gfx1151", ["rocm"], ["gfx1100"],
     environment=variables(OLLAMA_VULKAN="1")), None),
    ("openmp-two-runtimes", meeting("gnu", "gnu"), None),  # as torch and scikit-learn have
    ("openmp-two-runtimes", meeting("gnu", "llvm"), W),
    ("openmp-two-runtimes", meeting("llvm", "llvm"), W),
    ("openmp-two-runtimes", meeting("intel", "llvm"), E),
    ("commit-limit-reached", windows(46, 48), W),
    ("commit-limit-reached", windows(40, 48), None),
    ("commit-limit-reached", windows(20, 32, torch=TORCH), N),
    ("commit-limit-reached", windows(20, 34, torch=TORCH), None),
    ("commit-limit-reached", windows(20, 32), None),
    *(("commit-limit-reached", windows(3.9, 4, limits=told(effective_memory_because=why)), severity)
      for why, severity in (("machine", W), ("process_memory_limit", None))),
]  # fmt: skip
HAS = tuple(code for code, _, severity in CASES if severity)
LACKS = tuple(code for code, _, severity in CASES if not severity)


@pytest.mark.parametrize(("code", "subject", "severity"), CASES)
def test_a_report_has_a_hazard_or_not(code: str, subject: Report, severity: Severity | None) -> None:
    checks = examine(subject, only=(code,)).checks

    found = [check for check in checks if check.status is Status.FAILED]

    assert [check.severity for check in found] == ([severity] if severity else [])
    assert all(check.status in (Status.PASSED, Status.SKIPPED) for check in checks if not severity)
    for check in found:
        assert check.evidence and check.message[-1] not in ".:" and "unknown" not in check.message


def counting(**facts: Any) -> Report:
    rows = [{"runtime": "OpenMP", "cpus": 64, "because": "OMP_NUM_THREADS is 64"}]
    facts = {"effective_cpus_because": "online", "threads_expected": rows, **facts}
    return busy(**facts)


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (counting(), "OpenMP (64) starts more threads than the 8 CPUs"),
        (
            counting(process_threads=4),
            "",
        ),  # the variable requests them, the process has not started them
        (counting(process_threads=70, process_running_threads=2), "the process has 70 threads, 2 of"),
        (counting(process_threads=70, threads_expected=[]), ""),  # they sleep
        (counting(process_threads=70, process_running_threads=40, threads_expected=[]), "40 of them"),
    ],
)  # fmt: skip
def test_the_threads_of_a_process_are_counted(subject: Report, message: str) -> None:
    (check,) = examine(subject, only=("threads-exceed-cpus",)).checks

    assert check.status is (Status.FAILED if message else Status.PASSED)
    assert message in check.message
