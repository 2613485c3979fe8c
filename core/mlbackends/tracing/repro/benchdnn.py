"""The command of oneDNN's benchmark that runs a primitive again, from the line that it printed.

    benchdnn --matmul --engine=cpu --allow-enum-tags-only=0 --dt=bf16:bf16:bf16 --stag=ab --wtag=any
        --dtag=ab 128x512:512x256

benchdnn is built with oneDNN (tests/benchdnn). By default it checks results; `--mode=P` measures.
Where the program left a layout to oneDNN (`any`), so does the command. Many layouts that stand in lines
have no name in oneDNN's interface: benchdnn takes them where --allow-enum-tags-only is 0.

Source: oneDNN, tests/benchdnn/doc: the driver of each primitive.
"""

import shlex
from collections.abc import Callable
from typing import NamedTuple

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.work import named_sizes
from mlbackends.tracing.repro.attributes import attribute_options
from mlbackends.tracing.repro.tensors import Tensors, has_extra, own_tag, tag_of

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


class Command(NamedTuple):
    """A command, "" where there is none, and what it does not tell, or why there is none."""

    text: str
    notes: tuple[str, ...] = ()


def command(call: PrimitiveSignature) -> Command:
    """Return the command that runs a primitive again."""
    row = _DRIVERS.get(call.primitive.removesuffix("_v2"))
    if row is None:
        return Command("", (f"benchdnn has no driver for {call.primitive} that is known here",))
    made = _Call(call)
    tensors = made.tensors
    if not tensors.all or not all(each.dtype for each in tensors.all):
        return Command("", ("the line does not tell element types: it is older than oneDNN 1.0",))
    if "*" in call.problem or "-" in call.problem:
        return Command("", ("sizes are told only when it runs, and do not stand in the line",))
    driver, *builders = row
    options = [option for build in builders for option in build(made)]
    sizes = _sizes(call)
    dimensions = sizes.partition(":")[0].count("x") + 1 if driver == "--matmul" else 0
    attributes, notes = attribute_options(call.attributes, dimensions)
    has_strides = any(option.startswith("--strides") for option in options)
    if any(each.strides for each in tensors.all) and not has_strides:
        notes.append("strides are not the layout's own; benchdnn is asked for the layout")
    if any(each.kind == "sparse" for each in tensors.all):
        notes.append(
            "how sparse a tensor is does not stand in the line: benchdnn's own share is taken"
        )
    if driver != "--reorder" and any(has_extra(each) for each in tensors.all):
        notes.append("a tensor carries compensation or the like: its layout is left to oneDNN")
    if call.primitive == "gemm_api":
        notes.append("a product that oneDNN calls inside; benchdnn runs it as a matmul")
    engine = []
    if call.engine in {"cpu2gpu", "gpu2cpu"}:
        engine = ["--engine=gpu", f"--cross-engine={call.engine}"]
    elif call.engine.partition(":")[0] in {"cpu", "gpu"}:
        engine = [f"--engine={call.engine}"]
    options = [*engine, "--allow-enum-tags-only=0", *options, *attributes]
    return Command(shlex.join(["benchdnn", driver, *options, sizes]), tuple(notes))


def _sizes(call: PrimitiveSignature) -> str:
    """Return the sizes as benchdnn takes them; up to 2.3 a product is printed as m128n64k256."""
    sizes = named_sizes(call.problem) if call.primitive == "matmul" else None
    if sizes is None or not {"m", "n", "k"} <= sizes.keys():
        return call.problem
    batch = f"{sizes['b']}x" if "b" in sizes else ""
    return f"{batch}{sizes['m']}x{sizes['k']}:{batch}{sizes['k']}x{sizes['n']}"


class _Call:
    """A primitive, its tensors, and its auxiliary words by name."""

    def __init__(self, signature: PrimitiveSignature) -> None:
        self.signature = signature
        self.tensors = Tensors(signature.memory_descriptors)
        named = (word.partition(":") for word in signature.auxiliary.split())
        self.words = {name: value for name, _, value in named}
        self.direction = _DIRECTIONS.get(signature.propagation, "")


_Options = Callable[[_Call], list[str]]


def _direction(call: _Call) -> list[str]:
    return [f"--dir={call.direction}"] if call.direction else []


def _direction_and_bias(call: _Call) -> list[str]:
    bias = call.tensors.dtype("bia")
    if bias == "f32" and call.direction in _WITH_BIAS:
        return [f"--dir={_WITH_BIAS[call.direction]}"]
    return [*_direction(call), *([f"--bia-dt={bias}"] if bias else [])]


def _flags(call: _Call) -> list[str]:
    return [f"--{name}={call.words[name]}" for name in _FLAGS if call.words.get(name)]


def _algorithm(prefix: str) -> _Options:
    def options(call: _Call) -> list[str]:
        name = call.words.get("alg", "")
        return [f"--alg={name.removeprefix(prefix)}"] if name else []

    return options


def _convolution_algorithm(call: _Call) -> list[str]:
    words = _algorithm(f"{call.signature.primitive}_")(call)
    return [word.replace("winograd", "wino") for word in words]


def _three(call: _Call) -> list[str]:
    """Types and layouts of source, weights and destination."""
    types = ":".join(call.tensors.dtype(role) for role in ("src", "wei", "dst"))
    return [f"--dt={types}", *call.tensors.layouts(stag="src", wtag="wei", dtag="dst")]


def _matmul(call: _Call) -> list[str]:
    found = []
    if bias := call.tensors.named("bia"):
        mask = next((flag[4:] for flag in bias[0].flags.split("_") if flag.startswith("mask")), "")
        rows = max(2, call.signature.problem.partition(":")[0].count("x") + 1)
        found += [f"--bia-dt={bias[0].dtype}", f"--bia_mask={mask or 1 << (rows - 1)}"]
    if masks := call.words.get("runtime_dims_masks"):
        found.append(f"--runtime_dims_masks={masks}")
    return found


def _two_types(call: _Call) -> list[str]:
    source = call.tensors.dtype("src", "data")
    return [f"--sdt={source}", f"--ddt={call.tensors.dtype('dst') or source}"]


def _two_layouts(call: _Call) -> list[str]:
    tensors = call.tensors
    return [f"--stag={tensors.tag('src', 'data')}", f"--dtag={tensors.tag('dst', 'data')}"]


def _reorder(call: _Call) -> list[str]:
    extras = [
        f"{_COMPENSATIONS[flag[:3]]}:{flag[3:]}"
        for each in call.tensors.named("dst")
        for flag in each.flags.split(":")
        if flag[:3] in _COMPENSATIONS
    ]
    mask = call.words.get("runtime-dim-mask")
    return [
        *call.tensors.layouts(stag="src", dtag="dst"),
        *([f"--oflag={'+'.join(extras)}"] if extras else []),
        *([f"--runtime-dim-mask={mask}"] if mask else []),
    ]


def _softmax(call: _Call) -> list[str]:
    is_log = "log" in call.words.get("alg", "") or call.signature.primitive == "logsoftmax"
    return [f"--alg={'LOGSOFTMAX' if is_log else 'SOFTMAX'}"]


def _one(call: _Call) -> list[str]:
    """Drivers that take one layout; types may differ between source and destination."""
    types = [call.tensors.dtype("src", "data"), call.tensors.dtype("dst")]
    first = call.tensors.named("src", "data", "dst")
    return [
        f"--dt={':'.join(each for each in dict.fromkeys(types) if each)}",
        f"--tag={own_tag(first[0]) if first else 'any'}",
    ]


def _several(call: _Call) -> list[str]:
    """Drivers that take any number of sources; joined ones have one type."""
    sources = call.tensors.named("src")
    kinds = [each.dtype for each in sources]
    kinds = kinds[:1] if call.signature.primitive == "concat" else kinds
    return [
        f"--sdt={':'.join(kinds)}",
        f"--ddt={call.tensors.dtype('dst')}",
        f"--stag={':'.join(tag_of(each) for each in sources)}",
        f"--dtag={call.tensors.tag('dst')}",
    ]


def _source_layout(call: _Call) -> list[str]:
    return [f"--tag={call.tensors.tag('src')}"]


def _local_response(call: _Call) -> list[str]:
    name = call.words.get("alg", "").removeprefix("lrn_").partition("_")[0]
    return [f"--alg={name.upper()}"] if name else []


def _prelu(call: _Call) -> list[str]:
    roles = (("src", "data"), ("wei",))
    types = ":".join(call.tensors.dtype(*each) for each in roles)
    return [f"--sdt={types}", f"--stag={':'.join(call.tensors.tag(*each) for each in roles)}"]


def _normalization(call: _Call) -> list[str]:
    tensors = call.tensors
    both = [each[0] for each in (tensors.named("src", "data"), tensors.named("dst")) if each]
    found = [
        f"--dt={':'.join(dict.fromkeys(each.dtype for each in both))}",
        f"--tag={':'.join(tag_of(each) for each in both)}",
    ]
    statistics = tensors.named("stats", "mean")
    if statistics and call.signature.primitive.startswith("layer"):
        found.append(f"--stat_tag={tag_of(statistics[0])}")
    scale = tensors.dtype("scale", "shift", "scaleshift")
    if scale not in {"", "f32"}:
        found.append(f"--ss_dt={scale}")
    return found


def _recurrent(call: _Call) -> list[str]:
    tensors, words = call.tensors, call.words
    layer, bias = tensors.dtype("src_layer"), tensors.dtype("bia")
    configuration = f"{layer}{bias}" if layer == "bf16" and bias == "f32" else layer
    if tensors.dtype("wei_layer") == "s8":
        iterated = tensors.dtype("src_iter") or layer
        target = tensors.dtype("dst_iter") or iterated
        configuration = f"{iterated}{layer}{target}{tensors.dtype('dst_layer')}"
    direction = words.get("direction", "").rpartition("directional_")[2]
    activation = words.get("activation", "undef").removeprefix("eltwise_")
    tags = [tensors.tag(role) for role in ("src_layer", "wei_layer", "dst_layer")]
    return [
        *(word.replace("--dir", "--prop") for word in _direction(call)),
        f"--cfg={configuration}",
        f"--tag={':'.join(tags)}",
        *([f"--alg={words['alg'].upper()}"] if words.get("alg") else []),
        *([f"--direction={direction}"] if direction else []),
        *([f"--activation={activation.upper()}"] if activation != "undef" else []),
        *(["--flags=O"] if "diff_weights_overwrite" in words.get("flags", "") else []),
        *(["--with-peephole=true"] if tensors.named("wei_peephole", "weights_peephole") else []),
        *(["--with-projection=true"] if tensors.named("wei_proj", "weights_proj") else []),
    ]


_CONVOLUTION = (_direction_and_bias, _three, _convolution_algorithm)
_SOFTMAX = ("--softmax", _direction, _two_types, _two_layouts, _softmax, _flags)
_REDUCTION = (_two_types, _two_layouts, _algorithm("reduction_"), _flags)
_RESAMPLING = (_direction, _two_types, _source_layout, _algorithm("resampling_"))
#: Each primitive's driver, and what makes its options, in their order.
_DRIVERS: dict[str, tuple[str, *tuple[_Options, ...]]] = {
    "matmul": ("--matmul", _three, _matmul),
    "gemm_api": ("--matmul", _three, _matmul),
    "convolution": ("--conv", *_CONVOLUTION),
    "deconvolution": ("--deconv", *_CONVOLUTION),
    "inner_product": ("--ip", _direction_and_bias, _three),
    "reorder": ("--reorder", _two_types, _reorder),
    "softmax": _SOFTMAX,
    "logsoftmax": _SOFTMAX,
    "pooling": ("--pool", _direction, _one, _algorithm("pooling_"), _flags),
    "eltwise": ("--eltwise", _direction, _one, _algorithm("eltwise_"), _flags),
    "batch_normalization": ("--bnorm", _direction, _one, _flags),
    "group_normalization": ("--gnorm", _direction, _normalization, _flags),
    "layer_normalization": ("--lnorm", _direction, _normalization, _flags),
    "lrn": ("--lrn", _direction, _one, _local_response),
    "prelu": ("--prelu", _direction, _prelu),
    "shuffle": ("--shuffle", _direction, _one, _flags),
    "binary": ("--binary", _direction, _several, _algorithm("binary_"), _flags),
    "concat": ("--concat", _direction, _several, _flags),
    "sum": ("--sum", _direction, _several, _flags),
    "resampling": ("--resampling", *_RESAMPLING),
    "reduction": ("--reduction", *_REDUCTION),
    "rnn": ("--rnn", _recurrent),
}
