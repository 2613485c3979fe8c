"""flash_attn_3: FlashAttention 3, for Hopper."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import LIKE_FLASH

PEER = Peer(
    name="flash_attn_3",
    summary="FlashAttention 3, for Hopper",
    answers_to="FLASH_ATTENTION",
    probe="flash_attention",
    constraints=(
        *LIKE_FLASH,
        need.capability_between((8, 0), (9, 0)),
        need.head_dim_at_most(256),
    ),
    program=program("torch_libraries_program"),
    arguments=("flash_attn_3",),
    install="pip install of the folder hopper of github.com/Dao-AILab/flash-attention",
    packages=("flash-attn-3", "flash_attn_interface"),
    takes=frozenset({"softcap", "window"}),
    gradient=True,
)
