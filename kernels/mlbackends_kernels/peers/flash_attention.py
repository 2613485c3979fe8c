"""Peers of the FlashAttention family: flash-attn 2, 3 and 4, and FlashInfer."""

from functools import partial

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program
from mlbackends_kernels.peers._conditions import DENSE

_LIKE_FLASH = (
    *DENSE,
    need.dtype_in("float16", "bfloat16"),
    need.no_mask(),
    need.lower_right_causal(),
    need.head_dim_at_most(256),
)
_PEER = partial(
    Peer,
    answers_to="FLASH_ATTENTION",
    probe="flash_attention",
    program=program("torch_libraries_program"),
)
_FLASH = partial(_PEER, takes=frozenset({"softcap", "window"}), gradient=True)

PEERS = (
    _FLASH(
        name="flash_attn_2",
        summary="FlashAttention 2, of the package flash-attn",
        constraints=(*_LIKE_FLASH, need.capability_between((8, 0), (12, 1)), need.same_head_dim()),
        arguments=("flash_attn_2",),
        install="pip install flash-attn --no-build-isolation",
        packages=("flash-attn", "flash_attn"),
    ),
    _FLASH(
        name="flash_attn_3",
        summary="FlashAttention 3, for Hopper",
        constraints=(*_LIKE_FLASH, need.capability_between((8, 0), (9, 0))),
        arguments=("flash_attn_3",),
        install="pip install of the folder hopper of github.com/Dao-AILab/flash-attention",
        packages=("flash-attn-3", "flash_attn_interface"),
    ),
    _FLASH(
        name="flash_attn_4",
        summary="FlashAttention 4, in CuTe DSL",
        constraints=(
            *_LIKE_FLASH,
            need.capability_between((8, 0), (12, 1)),
            need.head_dim_multiple_of(8),
        ),
        arguments=("flash_attn_4",),
        install="pip install --pre flash-attn-4",
        packages=("flash-attn-4", "flash-attn-cute", "flash_attn/cute"),
    ),
    _PEER(
        name="flashinfer",
        summary="FlashInfer's batched prefill and decode",
        constraints=(*_LIKE_FLASH, need.capability_between((7, 5), (12, 1))),
        arguments=("flashinfer",),
        install="pip install flashinfer-python",
        packages=("flashinfer-python", "flashinfer"),
        takes=frozenset({"softcap"}),
    ),
)
