"""jax: jax.nn.dot_product_attention, by cuDNN for 16-bit dtypes, otherwise by XLA."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEERS = (
    Peer(
        name="jax",
        summary="jax.nn.dot_product_attention, by cuDNN for 16-bit dtypes, otherwise by XLA",
        answers_to="CUDNN_ATTENTION",
        probe="jax",
        constraints=(
            need.on_device("cuda"),
            need.dtype_in("float16", "bfloat16", "float32"),
            need.rank_is(),
            need.equal_batch(),
            need.grouped_heads(),
            need.same_head_dim(),
            need.non_empty(),
            need.no_dropout(),
            need.no_float64_inside(),
            need.not_nested(),
            need.mask_fixed(),
            need.no_lower_right(),
        ),
        program=program("jax_program"),
        install="pip install 'jax[cuda13]'",
        gradient=True,
    ),
)
