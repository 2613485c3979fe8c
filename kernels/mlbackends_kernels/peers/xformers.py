"""xformers: xFormers' memory-efficient attention."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import DENSE

PEERS = (
    Peer(
        name="xformers",
        summary="xFormers' memory-efficient attention",
        answers_to="EFFICIENT_ATTENTION",
        probe="xformers",
        constraints=(
            *DENSE,
            need.capability_between((5, 0), (12, 1)),
            need.dtype_in("float16", "bfloat16", "float32"),
            need.no_bool_mask(),
            need.mask_fixed(),
        ),
        program=program("torch_libraries_program"),
        arguments=("xformers",),
        install="pip install xformers",
        gradient=True,
    ),
)
