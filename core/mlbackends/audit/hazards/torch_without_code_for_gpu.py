"""The installed torch has no machine code for this GPU."""

from typing import NamedTuple

from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Symptom, Symptoms
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table

_WHEEL = pattern(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}(?:\+cu\d{2,3})?")
_RELEASE = pattern(r"(\d{1,2})\.(\d{1,2})")
_FOR_BLACKWELL = "install torch 2.7 or newer for CUDA 12.8 or newer (+cu128, +cu130)"
_FOR_OLDER = "install the torch for CUDA 12.6 (+cu126), up to release 2.14"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each kind of GPU that no code is for."""
    version, cuda = report.version("torch"), report.fact("torch.cuda_version", "")
    gpus = [device for device in report.devices("nvidia") if device.kind == "cuda"]
    if not cuda or not gpus:
        raise DoesNotApply("there is no torch for CUDA together with an NVIDIA GPU")
    build = "host.machine" if report.fact("host.machine") == "aarch64" else "host.platform"
    copies = [library for library in report.libraries("torch") if library.found_by == "site-packages"]
    is_wheel = any(copy.owner.startswith("torch ") for copy in copies)
    codes = targets(version, cuda, str(report.fact(build, "")), is_wheel)
    if codes is None:
        raise NotReported(f"the targets of torch {version} for CUDA {cuda} are not known")
    kinds = {gpu.capability: gpu for gpu in gpus if gpu.capability}
    for capability, gpu in kinds.items():
        if not runs_on(capability, codes):
            yield Symptom(
                f"torch {version}, built for CUDA {cuda}, is compiled for"
                f" {', '.join(codes.listed)}; GPU {gpu.index} ({gpu.name}) is {capability}",
                hint=_FOR_BLACKWELL if int(capability.partition(".")[0]) >= 10 else _FOR_OLDER,
                evidence={
                    "torch.cuda_version": cuda,
                    f"nvidia.devices.{gpu.index}.capability": capability,
                },
            )
    if not kinds:
        raise NotReported("no GPU reports its compute capability")


class Targets(NamedTuple):
    """What a build is compiled for. listed: for people. codes: () where only the bounds are known."""

    listed: tuple[str, ...]
    codes: tuple[str, ...] = ()
    lowest: str = ""
    highest: str = ""


def targets(version: str, cuda: str, build: str, is_wheel: bool = True) -> Targets | None:
    """Return what a build of torch is compiled for; None where nothing is known of it.

    build: aarch64, or the platform. is_wheel: whether it came as a wheel; of other builds only the
    compiler's lowest GPU is known.
    """
    data = table("audit/hazards/torch_without_code_for_gpu.toml")
    wheel, release = _WHEEL.fullmatch(version), _RELEASE.match(cuda)
    if release is None:
        return None
    compiler = [int(release[1]), int(release[2])]
    if is_wheel and wheel:
        torch = [int(wheel[1]), int(wheel[2])]
        for row in data["wheels"]:
            first, last = row["torch"]
            if first <= torch <= last and release[0] == row["cuda"]:
                codes = tuple(row.get(build, row["x86_64"]))
                return Targets(codes, codes)
    for row in data["compilers"]:
        if compiler >= row["since"] and compiler[0] == row["since"][0]:
            lowest, highest = row["lowest"], row["highest"]
            if is_wheel and wheel:
                return Targets((f"{lowest} to {highest} at most",), (), lowest, highest)
            return Targets((f"{lowest} and newer at most",), (), lowest, "99.9")
    return None


def runs_on(capability: str, code: Targets) -> bool:
    """Return whether a GPU can run some of the code; true for an invalid capability.

    A cubin runs on GPUs of the same major and the same or a higher minor number.
    """
    gpu = dotted_numbers(capability)
    if len(gpu) != 2:
        return True
    if not code.codes:
        return dotted_numbers(code.lowest) <= gpu <= dotted_numbers(code.highest)
    compiled = [dotted_numbers(name) for name in code.codes if name != "PTX"]
    has_ptx = "PTX" in code.codes and gpu >= compiled[-1]
    return has_ptx or any(target[0] == gpu[0] and target <= gpu for target in compiled)
