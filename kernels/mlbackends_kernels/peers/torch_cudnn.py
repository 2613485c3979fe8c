"""torch_cudnn: PyTorch's attention by cuDNN."""

from mlbackends.sdpa.constraints import no_float64_inside, no_lower_right
from mlbackends.sdpa.rules import cuda_cudnn
from mlbackends.sdpa.rules.environment import NEWEST
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEER = Peer(
    name="torch_cudnn",
    summary="PyTorch's attention by cuDNN",
    answers_to="CUDNN_ATTENTION",
    probe="torch",
    constraints=(*cuda_cudnn.cudnn(NEWEST), no_lower_right(), no_float64_inside()),
    program=program("torch_program"),
    arguments=("CUDNN_ATTENTION",),
    install="pip install torch",
    gradient=True,
)
