"""torch_flex: PyTorch's flex_attention, compiled."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import DENSE

PEER = Peer(
    name="torch_flex",
    summary="PyTorch's flex_attention, compiled",
    answers_to="OVERRIDEABLE",
    probe="torch",
    constraints=(
        *DENSE,
        need.capability_between((8, 0), (12, 1)),
        need.dtype_in("float16", "bfloat16", "float32"),
        need.no_mask(),
    ),
    program=program("torch_libraries_program"),
    arguments=("flex",),
    install="pip install torch",
    gradient=True,
)
