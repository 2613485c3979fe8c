"""flash_cuda: flash attention on NVIDIA GPUs, in CUDA C++ that is compiled ahead of time.

It has been emulated on the CPU, where fibers stand for a GPU's threads, and compared with float64, and been
compiled for sm80 to sm120; it has not run on a GPU yet. It needs cuda-python, and neither a compiler nor
NVRTC: the machine code comes with the package, and needs a driver of CUDA 13 or newer. Hopper has kernels
of its own, by bulk copies and products of warpgroups, which have not run on a GPU either.
"""

from typing import TYPE_CHECKING

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends_kernels.attention_cuda.by_kernels import ByKernels
from mlbackends_kernels.attention_flash.chips import CHIPS, CUDA, chip_of

if TYPE_CHECKING:
    from mlbackends_kernels.attention_cuda.device import DeviceAttention


_CHIPS = ", ".join(f"sm{each}" for each in CHIPS)


@need.constraint("wrong-capability", f"a GPU that runs code of {_CHIPS}", sizes=False)
def compiled_for(problem: AttentionProblem) -> str:
    """Ask for a chip that runs code of one in CHIPS. Silent where the device is no CUDA device."""
    capability = problem.capability
    if problem.platform != "cuda" or (capability is not None and chip_of(capability)):
        return ""
    if capability is None:
        return f"the compute capability of the device is not known; it needs code of {_CHIPS}"
    return f"the device is sm{capability[0]}{capability[1]}; it needs code of {_CHIPS}"


@need.constraint("gradient", "with several lengths, or heads of value's own, no gradient")
def whole_gradient(problem: AttentionProblem) -> str:
    """Ask for no gradient where sequences have their own lengths, or where key and value differ in heads."""
    if not problem.wants_gradient:
        return ""
    if problem.key_lengths:
        return "a gradient is required of sequences of several lengths; it computes none of these"
    if problem.rank == 4 and problem.key.shape[:2] != problem.value.shape[:2]:
        shapes = [list(each.shape[:2]) for each in (problem.key, problem.value)]
        return (
            f"a gradient is required, and key and value have batches and heads {shapes[0]} and"
            f" {shapes[1]}; they must be equal"
        )
    return ""


class FlashCuda(ByKernels, AttentionBackend):
    """One pass over the keys, and for a short query over parts of them at once; not yet run on a GPU.

    Shapes:  query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); returns (B, H, L, Ev). B and H
             may be 1 where the others' are not. Sequences of several lengths lie one after another, or
             have their keys in pages. Any strides; rows of aligned 16 bytes are read fastest. Heads that
             share keys are rows of one tile, which reads these once.
    Numbers: products of 16-bit elements are summed in float32. A row that sees no key is 0, one whose
             scores all overflow is NaN. Sums are scaled anew where the largest score has grown by more
             than 2 to the 8. Gradients are added in one order, without atomics: the same each time. In how
             many parts keys are taken depends on the count of multiprocessors.
    Source:  Dao 2023, FlashAttention-2; Dao et al. 2023, Flash-Decoding.
    """

    name, answers_to = "flash_cuda", SDPBackend.FLASH_ATTENTION
    constraints = (
        need.on_device("cuda"),
        compiled_for(),
        need.rank_is(4),
        need.dtype_in("float16", "bfloat16"),
        need.head_dim_at_most(256),
        whole_gradient(),
    )
    takes = frozenset(
        {
            "gradient", "grouped_heads", "logsumexp", "lower_right", "pages", "sinks", "softcap",
            "variable_lengths", "window",
        }
    )  # fmt: skip
    tolerance = {"float16": 2.0, "bfloat16": 2.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        from mlbackends_kernels.attention_cuda.requirements import missing_parts

        return missing_parts(libraries=(), built_for=CUDA)

    def _device(self, problem: AttentionProblem) -> "DeviceAttention":
        self.require_here(problem)
        from mlbackends_kernels.attention_flash.device import FLASH

        return FLASH
