"""The command of oneDNN's benchmark that runs a primitive again, from the line that it printed.

    benchdnn --matmul --engine=cpu --allow-enum-tags-only=0 --dt=bf16:bf16:bf16 --stag=ab --wtag=any
        --dtag=ab 128x512:512x256

benchdnn is built with oneDNN (tests/benchdnn). By default it checks results; `--mode=P` measures.
Where the program left a layout to oneDNN (`any`), so does the command. Many layouts in lines
have no name in oneDNN's interface: benchdnn takes them where --allow-enum-tags-only is 0.

Attributes in the words of its options:

    attr-post-ops:sum+eltwise_relu:0.5+binary_add:f32:2     --attr-post-ops=sum+relu:0.5+add:f32:2
    attr-scales:src0:0:f32+wei:2:f32                        --attr-scales=src:common:0.5+wei:per_dim_1
    post_ops:'sum;eltwise_relu;'                            1.x to 2.4

Values of scales and zero points are given when a primitive runs, and are not in its line.

Source: oneDNN, tests/benchdnn/doc: the driver of each primitive, knobs_attr.md.
"""

import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from mlbackends.base.tables import table
from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.work import named_sizes
from mlbackends.tracing.numbers import whole_number
from mlbackends.tracing.repro.call import Call, has_extra, own_tag, tag_of

# These mean an f32 bias in all versions; --bia-dt came later.
_WITH_BIAS = {"FWD_D": "FWD_B", "BWD_W": "BWD_WB"}
_FLAGS = ("flags", "axis", "alpha", "beta", "group", "eps", "p")
_COMPENSATIONS = {"s8m": "s8s8_comp", "zpm": "zp_comp"}


_WORDS = table("tracing/formats/onednn/words")
_QUOTED = re.compile(r"(post_ops|oscale|scales|zero_points|src_zp|dst_zp):'?([^' ]*)'?")
_PLAIN_ATTRIBUTES = frozenset(
    {"fpmath", "acc-mode", "deterministic", "scratchpad", "dropout", "rounding-mode"}
)


class Command(NamedTuple):
    """A command, or "", and notes: what the command lacks, or why there is none."""

    text: str
    notes: tuple[str, ...] = ()


def command(call: PrimitiveSignature) -> Command:
    """Return the command that runs a primitive again."""
    built = Call(call)
    row = _WORDS["drivers"].get(built.primitive)
    if row is None:
        return Command("", (f"benchdnn has no driver for {call.primitive} that is supported here",))
    if not built.tensors or not all(tensor.dtype for tensor in built.tensors):
        return Command("", ("the line has no element types: it is older than oneDNN 1.0",))
    if "*" in call.problem or "-" in call.problem:
        return Command("", ("sizes are known only at run time and are not in the line",))
    driver, *builders = row
    options = [option for build in builders for option in _BUILDERS[build](built)]
    sizes = call.problem
    dimensions = 0
    if driver == "--matmul":
        found = named_sizes(sizes) if call.primitive == "matmul" else None
        if found is not None and {"m", "n", "k"} <= found.keys():  # up to 2.3
            batch = f"{found['b']}x" if "b" in found else ""
            sizes = f"{batch}{found['m']}x{found['k']}:{batch}{found['k']}x{found['n']}"
        dimensions = sizes.partition(":")[0].count("x") + 1
    attributes, notes = _attribute_options(call.attributes, dimensions)
    has_strides = any(option.startswith("--strides") for option in options)
    if any(tensor.strides for tensor in built.tensors) and not has_strides:
        notes.append("strides differ from the layout's; benchdnn uses the layout")
    if any(tensor.kind == "sparse" for tensor in built.tensors):
        notes.append("the line does not record sparsity: benchdnn's default is used")
    if driver != "--reorder" and any(has_extra(tensor) for tensor in built.tensors):
        notes.append("a tensor carries compensation or the like: its layout is left to oneDNN")
    elif driver == "--reorder" and has_extra(built.first("src")):
        notes.append("--iflag is oneDNN's verbose_converter's; benchdnn up to 3.13 supports only --oflag")
    if driver == "--rnn" and call.propagation.startswith("backward"):
        notes.append("both gradients in one call: its work counts as two passes")
    if call.primitive == "gemm_api":
        notes.append("a product that oneDNN calls inside; benchdnn runs it as a matmul")
    engine = []
    if call.engine in {"cpu2gpu", "gpu2cpu"}:
        engine = ["--engine=gpu", f"--cross-engine={call.engine}"]
    elif call.engine.partition(":")[0] in {"cpu", "gpu"}:
        engine = [f"--engine={call.engine}"]
    options = [*engine, "--allow-enum-tags-only=0", *options, *attributes]
    return Command(shlex.join(["benchdnn", driver, *options, sizes]), tuple(notes))


def _attribute_options(text: str, dimensions: int = 0) -> tuple[list[str], list[str]]:
    """Return the options for the attributes field, and notes on what they cannot express.

    dimensions: how many the tensors of a matmul have, whose masks may be of the last two; else 0.
    """
    options: list[str] = []
    notes: list[str] = []
    for word in text.split():
        name, colon, value = word.removeprefix("attr-").partition(":")
        old = _QUOTED.fullmatch(word)
        if not colon:
            notes.append(f"the attribute {word!r} has no option in benchdnn")
        elif name == "post-ops" or (old is not None and name == "post_ops"):
            parts = value.split("+") if old is None else old[2].split(";")
            operations = (re.sub("^(eltwise_)?(binary_)?", "", part) for part in parts if part)
            options.append(f"--attr-post-ops={'+'.join(operations)}")
        elif name in {"scales", "zero-points"} and (old is None or name == "scales"):
            stand_in = "0.5" if name == "scales" else "1"
            notes.append(f"the values of {name} are not options: {stand_in} is used for `common`")
            found = []
            for part in value.split("+"):
                if option := _scale(part, stand_in, dimensions):
                    found.append(option)
                else:
                    notes.append(f"benchdnn has no word for the mask of {name} in {part}")
            if found:
                options.append(f"--attr-{name}={'+'.join(found)}")
        elif name in _PLAIN_ATTRIBUTES:
            options.append(f"--attr-{name}={value}")
        else:
            notes.append(f"the attribute {word!r} has no option in benchdnn that is supported here")
    return options, list(dict.fromkeys(notes))


def _scale(text: str, stand_in: str, dimensions: int) -> str:
    """Return the scale of one argument as an option has it, "" where its mask has no word."""
    argument, mask, *rest = text.split(":") if ":" in text else (text, "0")
    number = whole_number(mask)
    policy = "" if number is None else _WORDS["policies"].get(str(number), "")
    if dimensions > 2 and argument == "wei" and number == 3 << (dimensions - 2):
        policy = "per_ocic"
    elif dimensions > 2 and number == (1 << dimensions) - 1:
        policy = "per_tensor"
    if not policy:
        return ""
    value = [stand_in] if policy == "common" else []
    # Types come before the sizes of groups.
    rest = sorted(filter(None, rest), key=lambda word: word[0].isdecimal())
    return ":".join(["src" if argument == "src0" else argument, policy, *value, *rest])


_Options = Callable[[Call], list[str]]


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value else []


def _direction(call: Call) -> list[str]:
    return _option("dir", call.direction)


def _direction_and_bias(call: Call) -> list[str]:
    bias = call.dtype("bia")
    if bias == "f32" and call.direction in _WITH_BIAS:
        return [f"--dir={_WITH_BIAS[call.direction]}"]
    return [*_direction(call), *_option("bia-dt", bias)]


def _flags(call: Call) -> list[str]:
    return [option for name in _FLAGS for option in _option(name, call.words.get(name, ""))]


def _algorithm(call: Call) -> list[str]:
    name = call.words.get("alg", "").removeprefix(f"{call.primitive}_")
    if call.primitive in {"softmax", "logsoftmax"}:
        name = "LOGSOFTMAX" if "log" in name or call.primitive == "logsoftmax" else "SOFTMAX"
    elif call.primitive == "lrn":
        name = name.partition("_")[0].upper()
    return _option("alg", name.replace("winograd", "wino"))


def _three(call: Call) -> list[str]:
    """Types and layouts of source, weights and destination."""
    types = ":".join(call.dtype(role) for role in ("src", "wei", "dst"))
    return [f"--dt={types}", *call.layouts(stag="src", wtag="wei", dtag="dst")]


def _matmul(call: Call) -> list[str]:
    found = []
    if bias := call.named("bia"):
        mask = next((flag[4:] for flag in bias[0].flags.split("_") if flag.startswith("mask")), "")
        rows = max(2, call.problem.partition(":")[0].count("x") + 1)
        found += [f"--bia-dt={bias[0].dtype}", f"--bia_mask={mask or 1 << (rows - 1)}"]
    return found + _option("runtime_dims_masks", call.words.get("runtime_dims_masks", ""))


def _two_types(call: Call) -> list[str]:
    source = call.dtype("src", "data")
    return [f"--sdt={source}", f"--ddt={call.dtype('dst') or source}"]


def _two_layouts(call: Call) -> list[str]:
    return [f"--stag={call.tag('src', 'data')}", f"--dtag={call.tag('dst', 'data')}"]


def _one_layout(call: Call) -> list[str]:
    return [f"--tag={call.tag('src')}"]


def _reorder(call: Call) -> list[str]:
    return [
        *call.layouts(stag="src", dtag="dst"),
        *_option("iflag", _compensations(call, "src")),
        *_option("oflag", _compensations(call, "dst")),
        *_option("runtime-dim-mask", call.words.get("runtime-dim-mask", "")),
    ]


def _compensations(call: Call, role: str) -> str:
    """Return what a tensor carries for later use in the words of --oflag."""
    found = (flag for tensor in call.named(role) for flag in tensor.flags.split(":"))
    return "+".join(f"{_COMPENSATIONS[flag[:3]]}:{flag[3:]}" for flag in found if flag[:3] in _COMPENSATIONS)


def _one(call: Call) -> list[str]:
    """Drivers that take one layout; types may differ between source and destination."""
    types = [call.dtype("src", "data"), call.dtype("dst")]
    return [
        f"--dt={':'.join(kind for kind in dict.fromkeys(types) if kind)}",
        f"--tag={own_tag(call.first('src', 'data', 'dst'))}",
    ]


def _several(call: Call) -> list[str]:
    """Drivers that take any number of sources; joined ones have one type."""
    sources = call.named("src")
    kinds = [source.dtype for source in sources]
    kinds = kinds[:1] if call.primitive == "concat" else kinds
    return [
        f"--sdt={':'.join(kinds)}",
        f"--ddt={call.dtype('dst')}",
        f"--stag={':'.join(tag_of(source) for source in sources)}",
        f"--dtag={call.tag('dst')}",
    ]


def _prelu(call: Call) -> list[str]:
    roles = (("src", "data"), ("wei",))
    types = ":".join(call.dtype(*role) for role in roles)
    return [f"--sdt={types}", f"--stag={':'.join(call.tag(*role) for role in roles)}"]


def _normalization(call: Call) -> list[str]:
    both = [tensors[0] for tensors in (call.named("src", "data"), call.named("dst")) if tensors]
    found = [
        f"--dt={':'.join(dict.fromkeys(tensor.dtype for tensor in both))}",
        f"--tag={':'.join(tag_of(tensor) for tensor in both)}",
    ]
    statistics = call.named("stats", "mean")
    if statistics and call.primitive.startswith("layer"):
        found.append(f"--stat_tag={tag_of(statistics[0])}")
    scale = call.dtype("scale", "shift", "scaleshift")
    return found + _option("ss_dt", "" if scale == "f32" else scale)


def _recurrent(call: Call) -> list[str]:
    words = call.words
    layer, bias = call.dtype("src_layer"), call.dtype("bia")
    configuration = f"{layer}{bias}" if layer == "bf16" and bias == "f32" else layer
    if call.dtype("wei_layer") == "s8":
        iterated = call.dtype("src_iter") or layer
        target = call.dtype("dst_iter") or iterated
        configuration = f"{iterated}{layer}{target}{call.dtype('dst_layer')}"
    activation = words.get("activation", "undef").removeprefix("eltwise_")
    tags = [call.tag(role) for role in ("src_layer", "wei_layer", "dst_layer")]
    return [
        *_option("prop", call.direction),
        f"--cfg={configuration}",
        f"--tag={':'.join(tags)}",
        *_option("alg", words.get("alg", "").upper()),
        *_option("direction", words.get("direction", "").rpartition("directional_")[2]),
        *_option("activation", "" if activation == "undef" else activation.upper()),
        *_option("flags", "O" if "diff_weights_overwrite" in words.get("flags", "") else ""),
        *(["--with-peephole=true"] if call.named("wei_peephole", "weights_peephole") else []),
        *(["--with-projection=true"] if call.named("wei_proj", "weights_proj") else []),
    ]


#: What makes a driver's options, by its name in words.json.
_BUILDERS: dict[str, _Options] = {
    build.__name__.removeprefix("_"): build
    for build in (
        *(_direction, _direction_and_bias, _flags, _algorithm, _three, _matmul, _two_types, _two_layouts),
        *(_reorder, _one, _several, _prelu, _normalization, _recurrent, _one_layout),
    )
}
