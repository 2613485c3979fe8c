"""torch's wheels for CUDA on PyPI, and what they and a CUDA release need of a driver and a GPU.

wheels.json has a row for each release, as its newest patch release for x86-64 Linux is: CUDA and cuDNN by its
metadata (pytorch#193893 for cuDNN of 2.13.0), the GPUs that it has code for by what libtorch_python.so names.
None has PTX.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.model.problem import AttentionProblem

#: The GPUs that only Arm systems have (Jetson, Thor, GB10), for which other wheels are built.
_ARM_SYSTEMS = ("5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1")


class Wheel(Struct, frozen=True, forbid_unknown_fields=True):
    """A row. cudnn: as cudnnGetVersion returns it. code: compute capabilities."""

    torch: str
    cuda: str
    cudnn: int
    code: tuple[str, ...]

    def has_code_for(self, chip: str, versions: Mapping[str, str]) -> bool | None:
        """Return whether it has code for a compute capability; None for other systems' or another CUDA."""
        cuda = dotted_numbers(versions.get("cuda", self.cuda))
        if not chip or chip in _ARM_SYSTEMS or cuda[:2] != dotted_numbers(self.cuda):
            return None
        major, minor = map(int, chip.split("."))
        return any(code[0] == major and code[1] <= minor for code in map(dotted_numbers, self.code))


#: By releases of torch.
WHEELS: dict[tuple[int, int], Wheel] = {
    (int(wheel.torch.partition(".")[0]), int(wheel.torch.partition(".")[2])): wheel
    for wheel in msgspec.convert(table("sdpa/rules/wheels"), tuple[Wheel, ...])
}


def driver_reasons(wheel: Wheel, versions: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return why an assumed driver runs no build of torch for the assumed CUDA, else for the wheel's."""
    from mlbackends.libraries.cuda.driver import driver_for, too_old_for  # with mlbackends.host

    cuda, driver = versions.get("cuda", wheel.cuda), versions.get("driver", "")
    if not driver or not too_old_for(driver, cuda):
        return ()
    message = f"{needs(wheel, versions)}; the driver is {driver}"
    hint = f"install driver {driver_for(cuda)} or newer, or a build of torch for an older CUDA"
    return (Reason("driver-too-old", message, hint),)


def needs(wheel: Wheel, versions: Mapping[str, str]) -> str:
    """Return which driver the assumed CUDA needs, else the wheel's."""
    from mlbackends.libraries.cuda.driver import driver_for  # with mlbackends.host

    cuda = versions.get("cuda", "")
    if not (least := driver_for(cuda or wheel.cuda)):
        return f"the driver that CUDA {cuda or wheel.cuda} needs is not recorded"
    title = f"CUDA {cuda}" if cuda else f"torch {wheel.torch}'s wheel on PyPI is for CUDA {wheel.cuda}, which"
    return f"{title} needs driver {least} or newer"


def notes(wheel: Wheel, versions: Mapping[str, str], problem: AttentionProblem) -> tuple[str, ...]:
    """Return what assumed versions mean for torch on an NVIDIA GPU, beyond the rules of attention."""
    cuda, chip = dotted_numbers(versions.get("cuda", wheel.cuda)), problem.device.capability
    found = [] if driver_reasons(wheel, versions) else [needs(wheel, versions)]
    if cuda[:2] != dotted_numbers(wheel.cuda) and "cudnn" not in versions:
        release = cudnn_release(wheel.cudnn)
        found.append(f"cuDNN {release} is that of the wheel for CUDA {wheel.cuda}: --cudnn names another")
    if wheel.has_code_for(chip, versions) is False:
        sm = chip.replace(".", "")
        found.append(f"that wheel has no code for sm{sm}: use a build for another CUDA, or another torch")
    return tuple(found)
