"""What GPUs PyTorch's wheels are compiled for.

A cubin runs on GPUs of the same major and the same or a higher minor number. What is not in the table
is held to the compiler alone: no build for a CUDA release has code for GPUs that its compiler dropped,
and no wheel of a release before 2.9 holds PTX, from which newer GPUs could make their own.

Source: pytorch/pytorch, RELEASE.md, "PyTorch CUDA Support Matrix" (#164471 for 2.9, #172663 for 2.11,
#182849 for 2.12), .ci/manywheel/build_cuda.sh, and torch.cuda.get_arch_list() of 2.8, 2.10 and 2.11 as
told in #182250 and jhj0517/Whisper-WebUI#653; CUDA C++ Programming Guide, "Binary Compatibility";
release notes of CUDA 11.8, 12.0, 12.8 and 13.0 for what the compiler takes.
"""

from typing import NamedTuple

from mlbackends.model.patterns import pattern

_WHEEL = pattern(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}(?:\+cu\d{2,3})?")
_CAPABILITY = pattern(r"(\d{1,2})\.(\d)")
_RELEASE = pattern(r"(\d{1,2})\.(\d{1,2})")

_OLD = ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")
_FROM_VOLTA = ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
_FROM_TURING = _FROM_VOLTA[1:]
_ARM_OLD = ("8.0", "9.0")
_ARM = ("8.0", "9.0", "10.0", "12.0")
_ARM_THOR = ("8.0", "9.0", "10.0", "11.0", "12.0")

_PTX = "PTX"
"""What a newer GPU than the last can compile for itself."""

_WHEELS = (
    ((2, 8), (2, 14), "12.6", _OLD, _ARM_OLD),
    ((2, 8), (2, 10), "12.8", _FROM_VOLTA, _ARM),
    ((2, 8), (2, 9), "12.9", (*_FROM_VOLTA, _PTX), (*_ARM, _PTX)),
    ((2, 11), (2, 11), "12.8", _FROM_TURING, _ARM),
    ((2, 9), (2, 14), "13.0", (*_FROM_TURING, _PTX), (*_ARM_THOR, _PTX)),
    ((2, 12), (2, 14), "13.2", (*_FROM_TURING, _PTX), (*_ARM_THOR, _PTX)),
)
"""First and last release of torch, CUDA, and the code for x86-64 and for aarch64."""

_ANY = 999
_COMPILERS = (((13, 0), 75, 121), ((12, 8), 50, 121), ((12, 0), 50, 90), ((11, 8), 35, 90))
"""The first CUDA release of a row, and the lowest and highest capability, times ten."""


class Targets(NamedTuple):
    """listed: for people. codes: what is compiled, () where only the bounds are known."""

    listed: tuple[str, ...]
    codes: tuple[str, ...]
    lowest: int
    highest: int


def targets(version: str, cuda: str, is_arm: bool, is_wheel: bool = True) -> Targets | None:
    """Return what a build of torch is compiled for; None where nothing is known of it.

    is_wheel: whether it came as a wheel; of other builds only the compiler's lowest GPU is known.
    """
    wheel, release = _WHEEL.fullmatch(version), _RELEASE.match(cuda)
    if release is None:
        return None
    is_official = is_wheel and wheel is not None
    torch = (int(wheel[1]), int(wheel[2])) if is_official and wheel else (0, 0)
    for first, last, built_for, codes, arm_codes in _WHEELS:
        if first <= torch <= last and f"{release[1]}.{release[2]}" == built_for:
            found = arm_codes if is_arm else codes
            return Targets(found, found, 0, 0)
    for since, lowest, highest in _COMPILERS:
        if (int(release[1]), int(release[2])) >= since and int(release[1]) == since[0]:
            if not is_official:
                return Targets((f"{lowest / 10} and newer at most",), (), lowest, _ANY)
            words = (f"{lowest / 10} to {highest / 10} at most",)
            return Targets(words, (), lowest, highest)
    return None


def runs_on(capability: str, code: Targets) -> bool:
    """Tell whether a GPU runs some of the code; true for a capability that makes no sense."""
    match = _CAPABILITY.fullmatch(capability)
    if match is None:
        return True
    major, minor = int(match[1]), int(match[2])
    if not code.codes:
        return code.lowest <= major * 10 + minor <= code.highest
    listed = [one for one in code.codes if one != _PTX]
    if len(listed) < len(code.codes) and (major, minor) >= tuple(map(int, listed[-1].split("."))):
        return True
    return any(
        int(one.partition(".")[0]) == major and int(one.partition(".")[2]) <= minor
        for one in listed
    )
