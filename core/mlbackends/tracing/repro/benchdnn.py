"""The command of oneDNN's benchmark that runs a primitive again, from the line that it printed.

    benchdnn --matmul --engine=cpu --allow-enum-tags-only=0 --dt=bf16:bf16:bf16 --stag=ab --wtag=any
        --dtag=ab 128x512:512x256

benchdnn is built with oneDNN (tests/benchdnn). By default it checks results; `--mode=P` measures.
Where the program left a layout to oneDNN (`any`), so does the command. Many layouts that stand in lines
have no name in oneDNN's interface: benchdnn takes them where --allow-enum-tags-only is 0.
"""

import shlex
from typing import NamedTuple

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.work import named_sizes
from mlbackends.tracing.repro.attributes import options as attribute_options
from mlbackends.tracing.repro.drivers import DRIVERS
from mlbackends.tracing.repro.tensors import Tensors, has_extra


class Command(NamedTuple):
    """A command, "" where there is none, and what it does not tell, or why there is none."""

    text: str
    notes: tuple[str, ...] = ()


def command(call: PrimitiveSignature) -> Command:
    """Return the command that runs a primitive again."""
    build = DRIVERS.get(call.primitive.removesuffix("_v2"))
    if build is None:
        return Command("", (f"benchdnn has no driver for {call.primitive} that is known here",))
    tensors = Tensors(call.memory_descriptors)
    if not tensors.all or not all(each.dtype for each in tensors.all):
        return Command("", ("the line does not tell element types: it is older than oneDNN 1.0",))
    if "*" in call.problem or "-" in call.problem:
        return Command("", ("sizes are told only when it runs, and do not stand in the line",))
    driver, *told = build(call, tensors, _words(call.auxiliary))
    sizes = _problem(call)
    dimensions = sizes.partition(":")[0].count("x") + 1 if driver == "--matmul" else 0
    attributes, notes = attribute_options(call.attributes, dimensions)
    if any(each.strides for each in tensors.all) and not any("--strides" in one for one in told):
        notes.append("strides are not the layout's own; benchdnn is asked for the layout")
    if any(each.kind == "sparse" for each in tensors.all):
        notes.append(
            "how sparse a tensor is does not stand in the line: benchdnn's own share is taken"
        )
    if driver != "--reorder" and any(has_extra(each) for each in tensors.all):
        notes.append("a tensor carries compensation or the like: its layout is left to oneDNN")
    if call.primitive == "gemm_api":
        notes.append("a product that oneDNN calls inside; benchdnn runs it as a matmul")
    options = [*_engine(call.engine), "--allow-enum-tags-only=0", *told, *attributes]
    return Command(shlex.join(["benchdnn", driver, *options, sizes]), tuple(notes))


def _engine(engine: str) -> list[str]:
    if engine in {"cpu2gpu", "gpu2cpu"}:
        return ["--engine=gpu", f"--cross-engine={engine}"]
    return [f"--engine={engine}"] if engine.partition(":")[0] in {"cpu", "gpu"} else []


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
