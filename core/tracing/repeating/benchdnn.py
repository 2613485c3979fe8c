"""The command of oneDNN's benchmark that runs a primitive again, from the line that it printed.

    benchdnn --matmul --engine=cpu --dt=bf16:bf16:bf16 --stag=ab --wtag=ba --dtag=ab 128x512:512x256

benchdnn is built with oneDNN (tests/benchdnn). By default it checks results; `--mode=P` measures.
Source: oneDNN, tests/benchdnn/doc: the driver of each primitive.
"""

import shlex
from collections.abc import Callable
from typing import NamedTuple

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.onednn.descriptors import MemoryDescriptor, descriptors
from mlbackends.tracing.onednn.sizes import named_sizes
from mlbackends.tracing.repeating.attributes import options as attribute_options

_DIRECTIONS = {
    "forward_training": "FWD_D",
    "forward_inference": "FWD_I",
    "forward": "FWD_D",
    "backward_data": "BWD_D",
    "backward_weights": "BWD_W",
    "backward": "BWD_DW",
}
_WITH_BIAS = {"FWD_D": "FWD_B", "BWD_W": "BWD_WB"}
_FLAGS = ("flags", "axis", "alpha", "beta", "group", "eps", "p")


class Tensors:
    """The tensors of a call by role; gradients stand for what they are the gradient of."""

    def __init__(self, text: str) -> None:
        self.all = [each for each in descriptors(text) if each.present]

    def named(self, *roles: str) -> list[MemoryDescriptor]:
        """Return those whose name begins with one of the roles, those that are no gradients first."""
        found = [each for each in self.all if each.name.removeprefix("diff_").startswith(roles)]
        return sorted(found, key=lambda each: each.name.startswith("diff_"))

    def dtype(self, *roles: str) -> str:
        """Return the element type of the first, "" if there is none."""
        found = self.named(*roles)
        return found[0].dtype if found else ""

    def tag(self, *roles: str) -> str:
        """Return the layout of the first, "any" if there is none that a tag can name."""
        found = self.named(*roles)
        return _tag(found[0]) if found else "any"


class Command(NamedTuple):
    """A command, "" where there is none, and what it does not tell, or why there is none."""

    text: str
    notes: tuple[str, ...] = ()


def command(call: PrimitiveSignature) -> Command:
    """Return the command that runs a primitive again."""
    build = _DRIVERS.get(call.primitive.removesuffix("_v2"))
    if build is None:
        return Command("", (f"benchdnn has no driver for {call.primitive} that is known here",))
    tensors = Tensors(call.memory_descriptors)
    if not tensors.all or not all(each.dtype for each in tensors.all):
        return Command("", ("the line does not tell element types: it is older than oneDNN 1.0",))
    if "*" in call.problem or "-" in call.problem:
        return Command("", ("sizes are told only when it runs, and do not stand in the line",))
    told = build(call, tensors, _words(call.auxiliary))
    attributes, notes = attribute_options(call.attributes)
    if any(each.strides for each in tensors.all):
        notes.append("strides are not the layout's own; benchdnn is asked for the layout")
    if any(each.flags.strip(":") not in {"", "f0"} for each in tensors.all):
        notes.append("a tensor carries compensation or the like, which is left out")
    if call.primitive == "gemm_api":
        notes.append("a product that oneDNN calls inside; benchdnn runs it as a matmul")
    engine = call.engine.partition(":")[0]
    words = [told[0], *([f"--engine={engine}"] if engine in {"cpu", "gpu"} else [])]
    parts = [*words, *told[1:], *attributes, _problem(call)]
    return Command(shlex.join(["benchdnn", *parts]), tuple(notes))


def _problem(call: PrimitiveSignature) -> str:
    """Return the sizes as benchdnn takes them; up to 2.3 a product is told as m128n64k256."""
    sizes = named_sizes(call.problem) if call.primitive == "matmul" else None
    if sizes is None or not {"m", "n", "k"} <= sizes.keys():
        return call.problem
    batch = f"{sizes['b']}x" if "b" in sizes else ""
    return f"{batch}{sizes['m']}x{sizes['k']}:{batch}{sizes['k']}x{sizes['n']}"


def _words(auxiliary: str) -> dict[str, str]:
    named = (word.partition(":") for word in auxiliary.split())
    return {name: value for name, _, value in named}


def _tag(tensor: MemoryDescriptor) -> str:
    return tensor.layout if tensor.layout and tensor.kind == "blocked" else "any"


def _direction(call: PrimitiveSignature, *, bias: bool = False) -> list[str]:
    found = _DIRECTIONS.get(call.propagation, "")
    found = _WITH_BIAS.get(found, found) if bias else found
    return [f"--dir={found}"] if found else []


def _more(words: dict[str, str]) -> list[str]:
    return [f"--{name}={words[name]}" for name in _FLAGS if words.get(name)]


def _algorithm(words: dict[str, str], prefix: str) -> list[str]:
    found = words.get("alg", "")
    return [f"--alg={found.removeprefix(prefix)}"] if found else []


def _three(tensors: Tensors) -> list[str]:
    types = [tensors.dtype("src"), tensors.dtype("wei"), tensors.dtype("dst")]
    return [
        f"--dt={':'.join(types)}",
        f"--stag={tensors.tag('src')}",
        f"--wtag={tensors.tag('wei')}",
        f"--dtag={tensors.tag('dst')}",
    ]


def _matmul(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del words
    told = ["--matmul", *_three(tensors)]
    bias = tensors.named("bia")
    if bias:
        mask = next((flag[4:] for flag in bias[0].flags.split("_") if flag.startswith("mask")), "")
        rows = max(2, call.problem.partition(":")[0].count("x") + 1)
        told += [f"--bia-dt={bias[0].dtype}", f"--bia-mask={mask or 1 << (rows - 1)}"]
    return told


def _convolution(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    driver = "--conv" if call.primitive == "convolution" else "--deconv"
    bias = bool(tensors.named("bia"))
    algorithm = _algorithm(words, f"{call.primitive}_")
    algorithm = [word.replace("winograd", "wino") for word in algorithm]
    return [driver, *_direction(call, bias=bias), *_three(tensors), *algorithm]


def _inner_product(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del words
    bias = bool(tensors.named("bia"))
    return ["--ip", *_direction(call, bias=bias), *_three(tensors)]


def _two(tensors: Tensors) -> list[str]:
    source = tensors.dtype("src", "data")
    target = tensors.dtype("dst") or source
    return [
        f"--sdt={source}",
        f"--ddt={target}",
        f"--stag={tensors.tag('src', 'data')}",
        f"--dtag={tensors.tag('dst', 'data')}",
    ]


def _reorder(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    del call, words
    return ["--reorder", *_two(tensors)]


def _softmax(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    log = "log" in words.get("alg", "") or call.primitive == "logsoftmax"
    algorithm = f"--alg={'LOGSOFTMAX' if log else 'SOFTMAX'}"
    return ["--softmax", *_direction(call), *_two(tensors), algorithm, *_more(words)]


def _one(tensors: Tensors) -> list[str]:
    """Drivers that take one layout; types may differ between source and destination."""
    types = list(dict.fromkeys([tensors.dtype("src", "data"), tensors.dtype("dst")]))
    found = [each for each in types if each]
    return [f"--dt={':'.join(found)}", f"--tag={tensors.tag('src', 'data')}"]


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
            f"--stag={':'.join(_tag(each) for each in sources)}",
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


def _layer_normalization(
    call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]
) -> list[str]:
    source, target = tensors.named("src", "data"), tensors.named("dst")
    layouts = [_tag(each[0]) for each in (source, target) if each]
    types = [each[0].dtype for each in (source, target) if each]
    statistics = tensors.named("stats", "mean")
    told = [f"--stat_tag={_tag(statistics[0])}"] if statistics else []
    return [
        "--lnorm",
        *_direction(call),
        f"--dt={':'.join(dict.fromkeys(types))}",
        f"--tag={':'.join(layouts)}",
        *told,
        *_more(words),
    ]


def _recurrent(call: PrimitiveSignature, tensors: Tensors, words: dict[str, str]) -> list[str]:
    types = dict.fromkeys(each.dtype for each in tensors.named("src_layer", "src_iter", "wei"))
    direction = words.get("direction", "").rpartition("directional_")[2]
    activation = words.get("activation", "undef").removeprefix("eltwise_")
    return [
        "--rnn",
        *(word.replace("--dir", "--prop") for word in _direction(call)),
        f"--cfg={''.join(types)}",
        *([f"--alg={words['alg'].upper()}"] if words.get("alg") else []),
        *([f"--direction={direction}"] if direction else []),
        *([f"--activation={activation.upper()}"] if activation != "undef" else []),
    ]


Builder = Callable[[PrimitiveSignature, Tensors, dict[str, str]], list[str]]
_DRIVERS: dict[str, Builder] = {
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
    "group_normalization": _plain("--gnorm"),
    "lrn": _plain("--lrn", "lrn_"),
    "shuffle": _plain("--shuffle"),
    "layer_normalization": _layer_normalization,
    "binary": _several("--binary", prefix="binary_"),
    "concat": _several("--concat"),
    "sum": _several("--sum"),
    "resampling": _resampling,
    "reduction": _reduction,
    "rnn": _recurrent,
}
