"""The chips that flash_cuda's kernels are compiled for, and which of them a device can run the code of."""

CHIPS = (80, 86, 89, 90, 100, 103, 120)
#: The release of the compiler: the machine code runs on drivers of its major version, and on newer ones.
CUDA = "13.5"


def chip_of(capability: tuple[int, int]) -> int:
    """Return the chip whose machine code a device runs, as 86 for (8, 7); 0 where there is none.

    Code runs on later chips of its generation. Source: CUDA C++ Programming Guide, binary compatibility.
    """
    wanted = capability[0] * 10 + capability[1]
    return max(
        (each for each in CHIPS if each // 10 == capability[0] and each <= wanted), default=0
    )
