"""flashinfer: FlashInfer's batched prefill and decode."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import LIKE_FLASH

PEER = Peer(
    name="flashinfer",
    summary="FlashInfer's batched prefill and decode",
    answers_to="FLASH_ATTENTION",
    probe="flash_attention",
    constraints=(
        *LIKE_FLASH,
        need.capability_between((7, 5), (12, 1)),
        need.head_dim_at_most(256),
    ),
    program=program("torch_libraries_program"),
    arguments=("flashinfer",),
    install="pip install flashinfer-python",
    packages=("flashinfer-python", "flashinfer"),
    takes=frozenset({"softcap"}),
)
