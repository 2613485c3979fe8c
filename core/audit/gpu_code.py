"""What GPUs PyTorch's wheels are compiled for.

A cubin runs on GPUs of the same major and the same or a higher minor number. What is not in the table
is held to the compiler alone: no build for a CUDA release can have code that its compiler cannot make.

Source: pytorch/pytorch, RELEASE.md, "PyTorch CUDA Support Matrix" (#164471 for 2.9, #172663 for 2.11,
#182849 for 2.12) and torch.cuda.get_arch_list() of 2.8, 2.10 and 2.11 as told in #182250 and
jhj0517/Whisper-WebUI#653; CUDA C++ Programming Guide, "Binary Compatibility"; release notes of CUDA
11.8, 12.0, 12.8 and 13.0 for what the compiler takes.
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

_WHEELS = (
    ((2, 8), (2, 14), "12.6", _OLD, _ARM_OLD),
    ((2, 8), (2, 10), "12.8", _FROM_VOLTA, _ARM),
    ((2, 11), (2, 11), "12.8", _FROM_TURING, _ARM),
    ((2, 9), (2, 14), "13.0", _FROM_TURING, _ARM_THOR),
    ((2, 12), (2, 14), "13.2", _FROM_TURING, _ARM_THOR),
)
"""First and last release of torch, CUDA, and the code for x86-64 and for aarch64."""

_COMPILERS = (((13, 0), 75, 121), ((12, 8), 50, 121), ((12, 0), 50, 90), ((11, 8), 35, 90))
"""The first CUDA release of a row, and the lowest and highest capability, times ten."""


class Targets(NamedTuple):
    """listed: for people. codes: what is compiled, () where only the bounds are known."""

    listed: tuple[str, ...]
    codes: tuple[str, ...]
    lowest: int
    highest: int


def targets(version: str, cuda: str, is_arm: bool) -> Targets | None:
    """Return what a wheel of torch is compiled for; None for a build of which nothing is known."""
    wheel, release = _WHEEL.fullmatch(version), _RELEASE.match(cuda)
    if wheel is None or release is None:
        return None
    torch = int(wheel[1]), int(wheel[2])
    for first, last, built_for, codes, arm_codes in _WHEELS:
        if first <= torch <= last and f"{release[1]}.{release[2]}" == built_for:
            found = arm_codes if is_arm else codes
            return Targets(found, found, 0, 0)
    for since, lowest, highest in _COMPILERS:
        if (int(release[1]), int(release[2])) >= since and int(release[1]) == since[0]:
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
    return any(
        int(one.partition(".")[0]) == major and int(one.partition(".")[2]) <= minor
        for one in code.codes
    )
