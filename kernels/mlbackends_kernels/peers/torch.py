"""PyTorch's own attention kernels as peers."""

from functools import partial

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.rules import cpu, cuda, cuda_cudnn
from mlbackends.sdpa.rules.environment import NEWEST, Environment
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import DENSE

#: torch's function has no bottom-right masks and no float64 intermediates.
_USUAL = (need.no_lower_right(), need.no_float64_inside())
_PEER = partial(
    Peer,
    probe="torch",
    program=program("torch_program"),
    install="pip install torch",
    gradient=True,
)

PEERS = (
    _PEER(
        name="torch_cudnn",
        summary="PyTorch's attention by cuDNN",
        answers_to="CUDNN_ATTENTION",
        constraints=(*cuda_cudnn.cudnn(NEWEST), *_USUAL),
        arguments=("CUDNN_ATTENTION",),
    ),
    _PEER(
        name="torch_efficient",
        summary="PyTorch's own memory-efficient attention",
        answers_to="EFFICIENT_ATTENTION",
        constraints=(*cuda.efficient(NEWEST), *_USUAL),
        arguments=("EFFICIENT_ATTENTION",),
    ),
    _PEER(
        name="torch_flash",
        summary="PyTorch's own flash attention",
        answers_to="FLASH_ATTENTION",
        constraints=(*cpu.flash(Environment()), *_USUAL),
        on_cuda=(*cuda.flash(NEWEST), *_USUAL),
        arguments=("FLASH_ATTENTION",),
    ),
    _PEER(
        name="torch_flex",
        summary="PyTorch's flex_attention, compiled",
        answers_to="OVERRIDEABLE",
        constraints=(
            *DENSE,
            need.capability_between((8, 0), (12, 1)),
            need.dtype_in("float16", "bfloat16", "float32"),
            need.no_mask(),
        ),
        program=program("torch_libraries_program"),
        arguments=("flex",),
    ),
    _PEER(
        name="torch_math",
        summary="the plain formula of PyTorch",
        answers_to="MATH",
        constraints=(
            need.on_device("cpu", "cuda"),
            need.dtype_in("float64", "float32", "bfloat16", "float16"),
            *_USUAL,
        ),
        arguments=("MATH",),
    ),
)
