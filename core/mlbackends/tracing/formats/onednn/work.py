"""How much a primitive computes, and how much memory it cannot but touch.

A multiplication and an addition are two operations; points that fall into the padding count, as if
they were there. Work is counted for what is bound by it (products, convolutions, recurrent cells); for
the rest there is traffic alone. Traffic is each tensor once: what the caches save or a bad layout
costs is not in it.

Source: oneDNN 3.13, doc/primitives: the formulas of each primitive; src/common/verbose.cpp for what
the letters of a problem mean (mb batch, g groups, ic oc channels, i o k extents of source,
destination and kernel, l layers, t steps, slc sic dhc channels of layer, iteration and state).
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import nan, prod

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.descriptors import ELEMENT_BYTES, descriptors

_GATES = {"lstm": 4, "gru": 3, "augru": 3, "rnn": 1}
_PAIR = re.compile(r"([a-z]+)([0-9]+)")
_NAMED_SIZES = re.compile(r"(?:_?[a-z]+[0-9]{1,18})+_?")
_DIMS = "[0-9]{1,18}(?:x[0-9]{1,18}){0,11}"
_LISTS = re.compile(f"{_DIMS}(?::{_DIMS})*")
Elements = Mapping[str, float]


def named_sizes(problem: str) -> dict[str, int] | None:
    """Return the sizes of a problem by name, None if they are not named.

    mb4_ic3oc16_ih64oh64kh3sh1dh0ph1_iw64ow64kw3sw1dw0pw1, m128n64k256 (matmul in 1.x to 2.3),
    g2mb4ic16_ih8. `*` is a size that is only known when it runs; what holds one has no sizes here.
    """
    if _NAMED_SIZES.fullmatch(problem) is None:
        return None
    return {name: int(size) for name, size in _PAIR.findall(problem)}


def listed_sizes(problem: str) -> tuple[tuple[int, ...], ...] | None:
    """Return the sizes of each tensor (128x256:256x64), None where the problem does not list them."""
    if _LISTS.fullmatch(problem) is None:
        return None
    return tuple([tuple(map(int, part.split("x"))) for part in problem.split(":")])


def work(call: PrimitiveSignature) -> tuple[float | None, float | None]:
    """Return the operations and the bytes of one execution, None where its sizes are not known."""
    tensors = _tensors(call.memory_descriptors)
    if call.component == "graph" or tensors.has_sparse:
        return None, None
    flops: float | None = None
    amounts: Elements = {}
    named = named_sizes(call.problem)
    listed = listed_sizes(call.problem) if named is None else None
    with suppress(OverflowError):  # sizes that are damaged
        if call.primitive == "sdpa":
            flops, amounts = _attention(listed)
        elif call.primitive in _PRODUCTS:
            flops, amounts = _product(named, listed)
        elif named is not None and call.primitive in _COUNTED:
            with suppress(KeyError):  # a size that is not there
                flops, amounts = _COUNTED[call.primitive](named, call)
        elif named is not None:
            # Pooling, resampling and normalization: channels and extents.
            channels = named.get("ic", named.get("c", 0)) * named.get("mb", 1)
            source = channels * _extent(named, "i")
            moved = any("o" + axis in named for axis in "dhw")
            target = channels * _extent(named, "o") if moved else source
            small = dict.fromkeys(_SMALL - {"wei"}, named.get("ic", 0))
            amounts = {"src": source, "data": source, "dst": target, "ws": target, **small}
        elif listed is not None:
            amounts = _lists(call, [prod(dims) for dims in listed], tensors)
        else:
            return None, None
        return flops, tensors.traffic(amounts)
    return None, None


def _product(
    named: dict[str, int] | None, listed: tuple[tuple[int, ...], ...] | None
) -> tuple[float | None, Elements]:
    """Count a product (..., M, K) @ (..., K, N)."""
    if named is not None and {"m", "n", "k"} <= named.keys():
        batch = named.get("b", named.get("mb", named.get("bs", 1)))
        rows, columns, inner = (named[size] for size in "mnk")
        source, weights = batch * rows * inner, batch * inner * columns
    elif listed is not None and len(listed) >= 2 and len(listed[0]) == len(listed[1]) >= 2:
        left, right = listed[:2]
        if left[-1] != right[-2]:
            return None, {}
        batch = prod(map(max, left[:-2], right[:-2]))  # 1 stretches
        rows, inner, columns = left[-2], left[-1], right[-1]
        source, weights = prod(left), prod(right)
    else:
        return None, {}
    amounts = {"src": source, "wei": weights, "bia": columns, "dst": batch * rows * columns}
    return 2.0 * batch * rows * inner * columns, amounts


def _attention(listed: tuple[tuple[int, ...], ...] | None) -> tuple[float | None, Elements]:
    """Count the two products of attention: query (..., L, E), key either way round, value (..., S, Ev)."""
    if listed is None or len(listed) < 3 or min(map(len, listed[:3])) < 2:
        return None, {}
    query, key, value = listed[:3]
    rows, width = query[-2:]
    keys, columns = value[-2:]
    if {*key[-2:]} != {width, keys}:
        return None, {}
    amounts = {"query": prod(query), "key": prod(key), "val": prod(value)}
    scores = prod(query[:-2]) * rows
    return 2.0 * scores * keys * (width + columns), {**amounts, "dst": scores * columns}


def _extent(sizes: dict[str, int], letter: str) -> int:
    """Return the product of what a letter has along depth, height and width."""
    return prod(sizes.get(letter + axis, 1) for axis in "dhw")


def _convolution(sizes: dict[str, int], call: PrimitiveSignature) -> tuple[float, Elements]:
    """Count a convolution; a deconvolution has source and destination swapped."""
    batch, inputs, outputs = sizes["mb"], sizes["ic"], sizes["oc"]
    source, target = _extent(sizes, "i"), _extent(sizes, "o")
    weights = inputs * outputs * _extent(sizes, "k") / (sizes.get("g", 1) or 1)
    if call.primitive == "inner_product":  # the kernel covers the source
        weights, target = inputs * outputs * source, 1
    return 2.0 * batch * weights * (source if call.primitive == "deconvolution" else target), {
        "src": batch * inputs * source,
        "wei": weights,
        "bia": outputs,
        "dst": batch * outputs * target,
    }


def _recurrent(sizes: dict[str, int], call: PrimitiveSignature) -> tuple[float | None, Elements]:
    """Count the products of a recurrent net; going backward is both gradients, so twice."""
    words = call.auxiliary.replace(":", " ").split()
    cells = [word for word in words if word.startswith(("vanilla_", "lbr_"))]
    found = (_GATES[kind] for word in cells if (kind := word.rpartition("_")[2]) in _GATES)
    gates = next(found, None)
    if gates is None:
        return None, {}
    layers, steps, batch, state = (sizes[name] for name in ("l", "t", "mb", "dhc"))
    directions = 2 if any(word.startswith("bidirectional") for word in words) else 1
    passes = 2 if call.propagation.startswith("backward") else 1
    weights = directions * layers * gates * state
    wide = 2 if directions == 2 and "bidirectional_concat" in words else 1
    return 2.0 * passes * steps * batch * weights * (sizes["slc"] + sizes["sic"]), {
        "src_layer": steps * batch * sizes["slc"],
        "src_iter": directions * layers * batch * sizes["sic"],
        "wei_layer": weights * sizes["slc"],
        "wei_iter": weights * sizes["sic"],
        "bias": weights,
        "dst_layer": steps * batch * state * wide,
        "dst_iter": directions * layers * batch * state,
    }


_PRODUCTS = frozenset({"matmul", "gemm_api", "brgemm", "gemm"})
#: How the operations of other primitives are counted.
_COUNTED: dict[str, Callable[..., tuple[float | None, Elements]]] = {
    **dict.fromkeys(("convolution", "deconvolution", "inner_product"), _convolution),
    "rnn": _recurrent,
}


def _lists(call: PrimitiveSignature, counts: list[int], tensors: "_Tensors") -> Elements:
    """Count the elements from a list of sizes per tensor, or one list for all."""
    if len(counts) == 1:
        return dict.fromkeys(tensors.large, counts[0])
    if call.primitive == "concat":
        return {"dst": sum(counts), "src": sum(counts) / len(counts)}
    if call.primitive == "reduction":
        return {"src": counts[0], "dst": counts[-1]}
    return {f"src{index}": count for index, count in enumerate(counts)} | {"dst": max(counts)}


_SMALL = frozenset({"stats", "mean", "var", "ss", "scale", "shift", "wei"})


class _Tensors:
    """The tensors of a call that are there. large: the names of those that are as large as a problem."""

    def __init__(self, memory_descriptors: str) -> None:
        found = [descriptor for descriptor in descriptors(memory_descriptors) if descriptor.present]
        self.has_sparse = any(tensor.kind == "sparse" for tensor in found)
        names = [tensor.name for tensor in found]
        self.large = [name.removeprefix("diff_") for name in names if name not in _SMALL]
        # What is read and written under one name: `data`, or going backward its gradient.
        both = () if {"dst", "diff_dst"} & {*names} else ("diff_data", "diff", "data")
        twice = next((name for name in both if name in names), "")
        self._parts = []
        sources = 0
        for tensor in found:
            name = tensor.name.removeprefix("diff_")
            size = ELEMENT_BYTES.get(tensor.dtype, nan) * (2 if tensor.name == twice else 1)
            amounts: tuple[str, ...] = (name, role_of(name))
            if name.startswith("src"):
                amounts, sources = (f"src{sources}", *amounts), sources + 1
            self._parts.append((amounts, size, 0 if name in _SMALL else nan))

    def traffic(self, amounts: Elements) -> float | None:
        """Return the bytes of the elements; None where a tensor's type or size is not known."""
        total = 0.0
        for names, size, default in self._parts:
            for name in names:
                if name in amounts:
                    total += size * amounts[name]
                    break
            else:
                total += size * default
        return total if total > 0 else None  # "not a number" is greater than none


_tensors = lru_cache(maxsize=1024)(_Tensors)


def role_of(name: str) -> str:
    """Return the plain name of a tensor: src for src_a, wei for weights."""
    if name.startswith(("src", "data", "diff", "in")):
        return "src"
    return "dst" if name.startswith("out") else name[:3]
