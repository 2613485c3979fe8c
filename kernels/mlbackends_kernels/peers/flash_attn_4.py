"""flash_attn_4: FlashAttention 4, in CuTe DSL."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import LIKE_FLASH

PEER = Peer(
    name="flash_attn_4",
    summary="FlashAttention 4, in CuTe DSL",
    answers_to="FLASH_ATTENTION",
    probe="flash_attention",
    constraints=(
        *LIKE_FLASH,
        need.capability_between((8, 0), (12, 1)),
        need.head_dim_at_most(256),
        need.head_dim_multiple_of(8),
    ),
    program=program("torch_libraries_program"),
    arguments=("flash_attn_4",),
    install="pip install --pre flash-attn-4",
    packages=("flash-attn-4", "flash-attn-cute", "flash_attn/cute"),
    takes=frozenset({"softcap", "window"}),
    gradient=True,
)
