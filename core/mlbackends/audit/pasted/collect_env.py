"""the output of torch's or vLLM's collect_env."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, fields, is_stated, kernel, package, platform, versions

_FIELDS = {
    "torch.version": "PyTorch version",
    "nvidia.driver_release": "Nvidia driver version",
    "cuda_toolkit.version": "CUDA runtime version",
    "torch.hip_version": "ROCM used to build PyTorch",
    "python.version": "Python version",
    "packages.distributions.vllm": "vLLM Version",
}
_GPU = re.compile(
    r"^(?:GPU models and configuration\s*:[ \t]*)?(?:GPU (\d{1,3}): |(?<=: ))(\S.*)$", re.MULTILINE
)
_LISTED = re.compile(r"^\[(?:pip3?|uv)\] ([\w.-]+)==(\S+)", re.MULTILINE)
_CONDA = re.compile(r"^\[conda\] ([\w.-]+)[ \t]+(\d\S*)(?:[ \t]+(\S+))?", re.MULTILINE)
_VARIABLE = re.compile(r"^([A-Z][A-Z0-9_]{3,60})=(.*)$", re.MULTILINE)
_CUDNN = re.compile(r"libcudnn\.so\.(\d+\.\d+\.\d+)")
_OF_AMD = re.compile(r"(.*?)\s*\((gfx\w+)\)$")
_ROCM = re.compile(r"AMD |Radeon|Instinct")


def matches(text: str) -> bool:
    """Return whether the text has the lines that both print."""
    head = r"^(?:PyTorch version|CUDA used to build PyTorch)[ \t]*:|^\[(?:pip3?|uv|conda)\] \w"
    return bool(re.search(head, text, re.MULTILINE))


def read(text: str) -> Iterator[Stated]:
    """Read the fields, the GPUs, the packages, and vLLM's variables."""
    yield from versions(fields(text, _FIELDS))
    for one in fields(text, {"python.platform": "Python platform"}):
        yield from platform(str(one.value), one.at)
    yield from built_for(text)
    if os := next(fields(text, {"": "OS"}), None):
        yield from _system(str(os.value), os.at)
    for one in fields(text, {"host.libc_version": "Libc version"}):
        if (name := str(one.value).partition("-"))[0] in ("glibc", "musl"):
            yield Stated("host.libc", name[0], one.at)
            yield one._replace(value=name[2])
    is_rocm = re.search(r"^ROCM used to build PyTorch[ \t]*:[ \t]*\d", text, re.MULTILINE)
    for match in _GPU.finditer(text):
        index = match[1] or "0"
        if not is_stated(match[2]):
            continue
        if amd := _OF_AMD.match(match[2]):
            yield Stated(f"rocm.devices.{index}.name", amd[1], match.start())
            yield Stated(f"rocm.devices.{index}.capability", amd[2], match.start())
        elif "MIG " not in match[2]:
            probe = "rocm" if is_rocm or _ROCM.search(match[2]) else "nvidia"
            yield Stated(f"{probe}.devices.{index}.name", match[2].partition(" (UUID")[0], match.start())
    yield from (package(match[1], match[2], match.start()) for match in _LISTED.finditer(text))
    for match in _CONDA.finditer(text):
        yield package({"pytorch": "torch"}.get(match[1], match[1]), match[2], match.start())
    if (found := _CUDNN.search(text)) and "cuDNN version" in text:
        yield Stated("cudnn.version", found[1], found.start())
    if "vLLM Version" in text:
        for match in _VARIABLE.finditer(text):
            yield Stated(f"environment.variables.{match[1]}", match[2], match.start())


def built_for(text: str) -> Iterator[Stated]:
    """Yield what torch is built for, which is the CPU if neither CUDA nor ROCm is stated."""
    match = re.search(r"^CUDA used to build PyTorch[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    rocm = re.search(r"^ROCM used to build PyTorch[ \t]*:[ \t]*(\d.*)$", text, re.MULTILINE)
    if match and re.match(r"\d", match[1]):
        yield Stated("torch.cuda_version", match[1].strip(), match.start())
        yield Stated("torch.built_for", "cuda", match.start())
    elif rocm:
        yield Stated("torch.built_for", "rocm", rocm.start())
    elif match and match[1].strip() == "None":
        yield Stated("torch.built_for", "cpu", match.start())


def _system(value: str, at: int) -> Iterator[Stated]:
    name = value.partition("(")[0].strip()
    system = "win32" if "Windows" in name else "darwin" if name.startswith(("macOS", "Mac OS")) else "linux"
    yield Stated("host.platform", system, at)
    yield Stated("host.os_name", name, at)
    if machine := re.search(r"\((x86_64|aarch64|arm64|ppc64le)\)", value):
        yield Stated("host.machine", machine[1], at)
    if "microsoft" in value.lower() and "WSL" in value:
        yield from kernel(value, at)
