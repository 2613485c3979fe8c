"""How each driver of benchdnn is told what to run: its options, from a call's tensors and auxiliary words.

Source: oneDNN, tests/benchdnn/doc: the driver of each primitive.
"""

from collections.abc import Callable

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.repro.tensors import Tensors, own_tag, tag_of

_DIRECTIONS = {
    "forward_training": "FWD_D",
    "forward_inference": "FWD_I",
    "forward": "FWD_D",
    "backward_data": "BWD_D",
    "backward_weights": "BWD_W",
    "backward": "BWD_DW",
}
# These say that there is a bias of f32, in all versions; what --bia-dt says came later.
_WITH_BIAS = {"FWD_D": "FWD_B", "BWD_W": "BWD_WB"}
_FLAGS = ("flags", "axis", "alpha", "beta", "group", "eps", "p")
_COMPENSATIONS = {"s8m": "s8s8_comp", "zpm": "zp_comp"}


def _direction(call: PrimitiveSignature, bias: str = "") -> list[str]:
    """Return the direction, and with it the bias of an element type, "" for none."""
    found = _DIRECTIONS.get(call.propagation, "")
    told = _WITH_BIAS.get(found, "") if bias == "f32" else ""
    if told or not bias:
        return [f"--dir={told or found}"] if found else []
    return [*([f"--dir={found}"] if found else []), f"--bia-dt={bias}"]


def _more(words: dict[str, str]) -> list[str]:
    return [f"--{name}={words[name]}" for name in _FLAGS if words.get(name)]


def _algorithm(words: dict[str, str], prefix: str) -> list[str]:
    found = words.get("alg", "")
    return [f"--alg={found.removeprefix(prefix)}"] if found else []


def _three(tensors: Tensors) -> list[str]:
    types = [tensors.dtype("src"), tensors.dtype("wei"), tensors.dtype("dst")]
    return [f"--dt={':'.join(types)}", *tensors.layouts(stag="src", wtag="wei", dtag="dst")]


def _matmul(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    told = ["--matmul", *_three(tensors)]
    bias = tensors.named("bia")
    if bias:
        mask = next((flag[4:] for flag in bias[0].flags.split("_") if flag.startswith("mask")), "")
        rows = max(2, call.problem.partition(":")[0].count("x") + 1)
        told += [f"--bia-dt={bias[0].dtype}", f"--bia_mask={mask or 1 << (rows - 1)}"]
    if masks := words.get("runtime_dims_masks"):
        told.append(f"--runtime_dims_masks={masks}")
    return told


def _convolution(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    driver = "--conv" if call.primitive == "convolution" else "--deconv"
    algorithm = _algorithm(words, f"{call.primitive}_")
    algorithm = [word.replace("winograd", "wino") for word in algorithm]
    return [driver, *_direction(call, tensors.dtype("bia")), *_three(tensors), *algorithm]


def _inner_product(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del words
    return ["--ip", *_direction(call, tensors.dtype("bia")), *_three(tensors)]


def _two_types(tensors: Tensors) -> list[str]:
    source = tensors.dtype("src", "data")
    return [f"--sdt={source}", f"--ddt={tensors.dtype('dst') or source}"]


def _two(tensors: Tensors) -> list[str]:
    return [
        *_two_types(tensors),
        f"--stag={tensors.tag('src', 'data')}",
        f"--dtag={tensors.tag('dst', 'data')}",
    ]


def _reorder(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del call
    told = ["--reorder", *_two_types(tensors), *tensors.layouts(stag="src", dtag="dst")]
    extras = [
        f"{_COMPENSATIONS[flag[:3]]}:{flag[3:]}"
        for each in tensors.named("dst")
        for flag in each.flags.split(":")
        if flag[:3] in _COMPENSATIONS
    ]
    if extras:
        told.append(f"--oflag={'+'.join(extras)}")
    if mask := words.get("runtime-dim-mask"):
        told.append(f"--runtime-dim-mask={mask}")
    return told


def _softmax(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    log = "log" in words.get("alg", "") or call.primitive == "logsoftmax"
    algorithm = f"--alg={'LOGSOFTMAX' if log else 'SOFTMAX'}"
    return ["--softmax", *_direction(call), *_two(tensors), algorithm, *_more(words)]


def _one(tensors: Tensors) -> list[str]:
    """Drivers that take one layout; types may differ between source and destination."""
    types = list(dict.fromkeys([tensors.dtype("src", "data"), tensors.dtype("dst")]))
    found = [each for each in types if each]
    first = tensors.named("src", "data", "dst")
    return [f"--dt={':'.join(found)}", f"--tag={own_tag(first[0]) if first else 'any'}"]


def _plain(driver: str, prefix: str = "") -> "Builder":
    def build(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
        algorithm = _algorithm(words, prefix) if prefix else []
        return [driver, *_direction(call), *_one(tensors), *algorithm, *_more(words)]

    return build


def _several(driver: str, *, prefix: str = "") -> "Builder":
    """Drivers that take any number of sources."""

    def build(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
        sources = tensors.named("src")
        types = [each.dtype for each in sources]
        kinds = types if prefix or driver == "--sum" else types[:1]
        return [
            driver,
            *_direction(call),
            f"--sdt={':'.join(kinds)}",
            f"--ddt={tensors.dtype('dst')}",
            f"--stag={':'.join(tag_of(each) for each in sources)}",
            f"--dtag={tensors.tag('dst')}",
            *(_algorithm(words, prefix) if prefix else []),
            *_more(words),
        ]

    return build


def _resampling(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    source = tensors.dtype("src")
    return [
        "--resampling",
        *_direction(call),
        f"--sdt={source}",
        f"--ddt={tensors.dtype('dst') or source}",
        f"--tag={tensors.tag('src')}",
        *_algorithm(words, "resampling_"),
    ]


def _reduction(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del call
    return ["--reduction", *_two(tensors), *_algorithm(words, "reduction_"), *_more(words)]


def _local_response(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    name = words.get("alg", "").removeprefix("lrn_").partition("_")[0]
    algorithm = [f"--alg={name.upper()}"] if name else []
    return ["--lrn", *_direction(call), *_one(tensors), *algorithm]


def _prelu(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del words
    types = [tensors.dtype("src", "data"), tensors.dtype("wei")]
    tags = [tensors.tag("src", "data"), tensors.tag("wei")]
    return ["--prelu", *_direction(call), f"--sdt={':'.join(types)}", f"--stag={':'.join(tags)}"]


def _normalization(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    source, target = tensors.named("src", "data"), tensors.named("dst")
    layouts = [tag_of(each[0]) for each in (source, target) if each]
    types = [each[0].dtype for each in (source, target) if each]
    statistics = tensors.named("stats", "mean")
    is_layers = call.primitive.startswith("layer")
    told = [f"--stat_tag={tag_of(statistics[0])}"] if statistics and is_layers else []
    scale = tensors.dtype("scale", "shift", "scaleshift")
    if scale not in {"", "f32"}:
        told.append(f"--ss_dt={scale}")
    return [
        "--lnorm" if is_layers else "--gnorm",
        *_direction(call),
        f"--dt={':'.join(dict.fromkeys(types))}",
        f"--tag={':'.join(layouts)}",
        *told,
        *_more(words),
    ]


def _recurrent(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    direction = words.get("direction", "").rpartition("directional_")[2]
    activation = words.get("activation", "undef").removeprefix("eltwise_")
    tags = [tensors.tag("src_layer"), tensors.tag("wei_layer"), tensors.tag("dst_layer")]
    return [
        "--rnn",
        *(word.replace("--dir", "--prop") for word in _direction(call)),
        f"--cfg={_configuration(tensors)}",
        f"--tag={':'.join(tags)}",
        *([f"--alg={words['alg'].upper()}"] if words.get("alg") else []),
        *([f"--direction={direction}"] if direction else []),
        *([f"--activation={activation.upper()}"] if activation != "undef" else []),
        *(["--flags=O"] if "diff_weights_overwrite" in words.get("flags", "") else []),
        *(["--with-peephole=true"] if tensors.named("wei_peephole", "weights_peephole") else []),
        *(["--with-projection=true"] if tensors.named("wei_proj", "weights_proj") else []),
    ]


def _configuration(tensors: Tensors) -> str:
    """Return the name that the driver has for a set of types."""
    layer = tensors.dtype("src_layer")
    if tensors.dtype("wei_layer") == "s8":
        iterated = tensors.dtype("src_iter") or layer
        target = tensors.dtype("dst_iter") or iterated
        return f"{iterated}{layer}{target}{tensors.dtype('dst_layer')}"
    bias = tensors.dtype("bia")
    return f"{layer}{bias}" if layer == "bf16" and bias == "f32" else layer


Builder = Callable[[PrimitiveSignature, Tensors, dict[str, str]], list[str]]
DRIVERS: dict[str, Builder] = {
    "matmul": _matmul,
    "gemm_api": _matmul,
    "convolution": _convolution,
    "deconvolution": _convolution,
    "inner_product": _inner_product,
    "reorder": _reorder,
    "softmax": _softmax,
    "logsoftmax": _softmax,
    "pooling": _plain("--pool", "pooling_"),
    "eltwise": _plain("--eltwise", "eltwise_"),
    "batch_normalization": _plain("--bnorm"),
    "group_normalization": _normalization,
    "lrn": _local_response,
    "prelu": _prelu,
    "shuffle": _plain("--shuffle"),
    "layer_normalization": _normalization,
    "binary": _several("--binary", prefix="binary_"),
    "concat": _several("--concat"),
    "sum": _several("--sum"),
    "resampling": _resampling,
    "reduction": _reduction,
    "rnn": _recurrent,
}
