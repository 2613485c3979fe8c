"""torch_math: the plain formula of PyTorch."""

from mlbackends.sdpa.constraints import dtype_in, no_float64_inside, no_lower_right, on_device
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEER = Peer(
    name="torch_math",
    summary="the plain formula of PyTorch",
    answers_to="MATH",
    probe="torch",
    constraints=(
        on_device("cpu", "cuda"),
        dtype_in("float64", "float32", "bfloat16", "float16"),
        no_lower_right(),
        no_float64_inside(),
    ),
    program=program("torch_program"),
    arguments=("MATH",),
    install="pip install torch",
    gradient=True,
)
