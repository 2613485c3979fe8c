"""torch_efficient: PyTorch's own memory-efficient attention."""

from mlbackends.sdpa.constraints import no_float64_inside, no_lower_right
from mlbackends.sdpa.rules import cuda
from mlbackends.sdpa.rules.environment import NEWEST
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEER = Peer(
    name="torch_efficient",
    summary="PyTorch's own memory-efficient attention",
    answers_to="EFFICIENT_ATTENTION",
    probe="torch",
    constraints=(*cuda.efficient(NEWEST), no_lower_right(), no_float64_inside()),
    program=program("torch_program"),
    arguments=("EFFICIENT_ATTENTION",),
    install="pip install torch",
    gradient=True,
)
