"""onednn_graph: the fused attention of oneDNN's Graph API on the CPU."""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

PEER = Peer(
    name="onednn_graph",
    summary="the fused attention of oneDNN's Graph API on the CPU",
    # As torch has it on Intel's GPUs, where the same graph answers for this kind.
    answers_to="OVERRIDEABLE",
    probe="onednn",
    constraints=(
        need.on_device("cpu"),
        need.dtype_in("float32", "bfloat16", "float16"),
        need.rank_is(),
        need.equal_batch(),
        need.grouped_heads(),
        need.non_empty(),
        need.no_dropout(),
        need.no_float64_inside(),
        need.not_nested(),
    ),
    program=program("onednn_program"),
    function="dnnl_graph_compiled_partition_execute",
    prefers=("cpu_runtime", "openmp"),
    install=(
        "build oneDNN 3.8 or newer with ONEDNN_CPU_RUNTIME=OMP and name its folder by DNNLROOT,"
        " or pip install paddlepaddle, which brings one"
    ),
)
