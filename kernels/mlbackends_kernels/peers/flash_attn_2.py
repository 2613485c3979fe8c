"""flash_attn_2: FlashAttention 2, of the package flash-attn."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import LIKE_FLASH

PEER = Peer(
    name="flash_attn_2",
    summary="FlashAttention 2, of the package flash-attn",
    answers_to="FLASH_ATTENTION",
    probe="flash_attention",
    constraints=(
        *LIKE_FLASH,
        need.capability_between((8, 0), (12, 1)),
        need.same_head_dim(),
        need.head_dim_at_most(256),
    ),
    program=program("torch_libraries_program"),
    arguments=("flash_attn_2",),
    install="pip install flash-attn --no-build-isolation",
    packages=("flash-attn", "flash_attn"),
    takes=frozenset({"softcap", "window"}),
    gradient=True,
)
