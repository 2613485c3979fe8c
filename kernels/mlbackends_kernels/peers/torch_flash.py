"""torch_flash: PyTorch's own flash attention."""

from mlbackends.sdpa.constraints import no_float64_inside, no_lower_right
from mlbackends.sdpa.rules import cpu, cuda
from mlbackends.sdpa.rules.environment import NEWEST, Environment
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEER = Peer(
    name="torch_flash",
    summary="PyTorch's own flash attention",
    answers_to="FLASH_ATTENTION",
    probe="torch",
    constraints=(*cpu.flash(Environment()), no_lower_right(), no_float64_inside()),
    on_cuda=(*cuda.flash(NEWEST), no_lower_right(), no_float64_inside()),
    program=program("torch_program"),
    arguments=("FLASH_ATTENTION",),
    install="pip install torch",
    gradient=True,
)
