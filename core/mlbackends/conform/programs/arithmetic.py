"""Inputs, exact results and errors of the operations, with NumPy's long double, which uses no BLAS.

A unit is the error that the element type allows: half of its spacing at the result, and for each sum over k
products the same at the norms of the factors, times the square root of k. A right result has a few units.
"""

import math
from typing import Any

import numpy as np

#: The distance between 1 and the next number, the smallest normal number, and the largest.
TYPES = {
    "float64": (2.0**-52, 2.0**-1022, float(np.finfo(np.float64).max)),
    "float32": (2.0**-23, 2.0**-126, float(np.finfo(np.float32).max)),
    "bfloat16": (2.0**-7, 2.0**-126, 2.0**127 * (2 - 2.0**-7)),
    "float16": (2.0**-10, 2.0**-14, 65504.0),
}
TYPES |= {"complex64": TYPES["float32"], "complex128": TYPES["float64"]}
#: What is right at most, in units.
MOST_UNITS = 8.0
#: What layer norm adds to the variance; every element type has it exactly.
EPSILON = 2.0**-17
#: An operation without rounding of its own has this share of the unit: one wrong bit is too much.
_EXACT = 1 / 16
_LEAST_PART = 0.5
_WIDE = np.longdouble
_SPREADS = {"exp": 8.0, "log": 4.0, "erf": 1.5, "cast": 100.0}


def rounded(values: Any, dtype: str) -> Any:
    """Return float64 values rounded to the nearest number of an element type, ties to even."""
    epsilon, smallest, largest = TYPES[dtype]
    values = np.asarray(values, np.float64)
    if dtype == "float64":
        return values
    with np.errstate(all="ignore"):
        exponent = np.frexp(values)[1] - 1  # |value| is in [2^exponent, 2^(exponent + 1))
        step = np.ldexp(epsilon, np.maximum(exponent, int(math.log2(smallest))))
        result = np.where(np.isfinite(values), np.rint(values / step) * step, values)
        return np.where(np.isfinite(values) & (abs(result) > largest), np.copysign(np.inf, values), result)


def shapes(operation: str, s: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of the inputs of an operation, by its sizes."""
    if operation == "gemm":
        return [(s["m"], s["k"]), (s["k"], s["n"])]
    if operation == "convolution":
        kernel = (s["features"], s["channels"], s["kernel"], s["kernel"])
        return [(s["batch"], s["channels"], s["height"], s["width"]), kernel]
    if operation == "attention":
        rows = (s["queries"], s["keys"], s["keys"])
        return [(s["batch"], s["heads"], count, s["width"]) for count in rows]
    return [(s["rows"], s["size"]), *[(s["size"],)] * (2 if operation == "layer-norm" else 0)]


def inputs(problem: dict[str, Any]) -> list[Any]:
    """Return the arrays of a problem in float64 (complex128), as its element type has them."""
    draw = np.random.default_rng(problem["seed"])
    operation, kind = problem["operation"], problem["values"]
    dtype = "float32" if operation == "cast" else problem["dtype"]
    # With a stride of zero there is one element, repeated.
    sizes = {**problem["sizes"], **({"size": 1} if problem["layout"] == "zero-stride" else {})}
    arrays = []
    for shape in shapes(operation, sizes):
        values = draw.standard_normal(shape)
        if dtype.startswith("complex"):
            values = values + 1j * draw.standard_normal(shape)
            arrays.append(values.astype(dtype).astype(np.complex128))
            continue
        values *= _SPREADS.get(operation, 1.0)
        if operation == "log":
            values = np.exp(values)
        if kind == "subnormal":
            values *= TYPES[problem["dtype"]][1] / (64 * _SPREADS.get(operation, 1.0))
        elif kind == "large":
            values *= 1e4
        elif kind in ("nan", "infinite") and values.size:
            values.flat[draw.integers(values.size)] = math.nan if kind == "nan" else math.inf
        arrays.append(rounded(values, dtype))
    return arrays


def options(problem: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of an operation."""
    named: dict[str, Any] = {"layer-norm": {"epsilon": EPSILON}, "cast": {"dtype": problem["dtype"]}}
    named["convolution"] = {name: problem["sizes"].get(name) for name in ("stride", "padding")}
    return dict(named.get(problem["operation"], {}))


def exact(problem: dict[str, Any], arrays: list[Any]) -> tuple[Any, Any]:
    """Return the exact result of a problem, and the unit of each element."""
    with np.errstate(all="ignore"):
        values, scale = _RESULTS[problem["operation"]](*arrays, **options(problem))
        if problem["layout"] == "zero-stride":
            values, scale = values * problem["sizes"]["size"], scale * problem["sizes"]["size"] ** 1.5
        return values, TYPES[problem["dtype"]][0] / 2 * scale


# Each returns the exact result, and what the element type's rounding is relative to.
def _gemm(a: Any, b: Any) -> tuple[Any, Any]:
    wide = np.clongdouble if np.iscomplexobj(a) else _WIDE
    values = np.matmul(a.astype(wide), b.astype(wide))
    return values, abs(values) + math.sqrt(a.shape[-1]) * _norm(a, -1) * _norm(b, -2)


def _norm(array: Any, axis: int) -> Any:
    return np.sqrt((abs(array) ** 2).sum(axis, keepdims=True))


def _convolution(image: Any, kernel: Any, stride: int, padding: int) -> tuple[Any, Any]:
    padded = np.pad(image, ((0, 0), (0, 0), *[(padding, padding)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], (2, 3))
    columns = windows[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)
    flat = kernel.reshape(kernel.shape[0], -1).T
    values, scale = _gemm(columns.reshape(*columns.shape[:3], flat.shape[0]), flat)
    return values.transpose(0, 3, 1, 2), scale.transpose(0, 3, 1, 2)


def _softmax(x: Any) -> tuple[Any, Any]:
    shifted = x.astype(_WIDE) - x.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(shifted)
    values = powers / powers.sum(-1, keepdims=True)
    return values, values * (3 + np.where(np.isfinite(shifted), -shifted, 0) + math.sqrt(x.shape[-1]))


def _layer_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> tuple[Any, Any]:
    wide = x.astype(_WIDE)
    mean = wide.mean(-1, keepdims=True)
    deviation = np.sqrt(((wide - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    scaled = (wide - mean) / deviation
    values = scaled * weight + bias
    inner = 3 * abs(scaled) + abs(mean) / deviation + (abs(scaled) + 1) * math.sqrt(x.shape[-1]) / 4
    return values, inner * abs(weight) + abs(bias) + abs(values)


def _attention(query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    root = math.sqrt(query.shape[-1])
    products, errors = _gemm(query, key.swapaxes(-1, -2))
    weights = _softmax(products / root)[0]
    spread = weights * (3 + (abs(products) + errors) / root + math.sqrt(key.shape[-2]))
    values = weights @ value.astype(_WIDE)
    return values, abs(values) + spread @ abs(value).astype(_WIDE)


def _sum(x: Any) -> tuple[Any, Any]:
    values = x.astype(_WIDE).sum(-1)
    return values, abs(values) + math.sqrt(x.shape[-1]) * abs(x).sum(-1)


def _fft(x: Any) -> tuple[Any, Any]:
    length = max(x.shape[-1], 1)
    angles = np.outer(np.arange(length), np.arange(length)) % length
    turn = _WIDE("6.28318530717958647692528676655900576839") / length
    values = x.astype(np.clongdouble) @ (np.cos(angles * turn) - 1j * np.sin(angles * turn))
    return values, abs(values) + max(math.log2(length), 1) * _norm(x, -1)


def _each(values: Any, share: float = 1.0) -> tuple[Any, Any]:
    return values, abs(values) * share


_RESULTS: dict[str, Any] = {
    "gemm": _gemm, "convolution": _convolution, "softmax": _softmax, "layer-norm": _layer_norm,
    "attention": _attention, "sum": _sum, "fft": _fft,
    "exp": lambda x: _each(np.exp(x.astype(_WIDE))), "log": lambda x: _each(np.log(x.astype(_WIDE))),
    "erf": lambda x: _each(np.array([math.erf(one) for one in x.flat]).reshape(x.shape)),
    "max": lambda x: _each(x.max(-1, initial=-np.inf), _EXACT),
    "cast": lambda x, dtype: _each(rounded(x, dtype), _EXACT),
}  # fmt: skip


def judged(problem: dict[str, Any], arrays: list[Any], result: Any) -> dict[str, Any]:
    """Return how right a result is, as fields of `mlbackends.model.conformity.Conformity`."""
    epsilon, smallest, largest = TYPES[problem["dtype"]]
    values, unit = exact(problem, arrays)
    result = result.astype(np.complex128 if np.iscomplexobj(result) else np.float64)
    if result.shape != values.shape:
        return {"answer": "wrong", "message": f"its shape is {result.shape}, not {values.shape}"}
    if not values.size:
        return {"answer": "right"}
    with np.errstate(all="ignore"):
        # At the end of the range either neighbour is right: the largest number, or infinity.
        is_large, infinite = abs(values) > largest * (1 - epsilon), abs(values) > largest * (1 + epsilon)
        misplaced = (np.isnan(values) != np.isnan(result)) | (np.isinf(result) & ~is_large)
        misplaced |= infinite & ~(np.isinf(result) & (np.sign(values) == np.sign(result)))
        finite = np.isfinite(values) & np.isfinite(result) & ~is_large
        distance = np.where(finite, abs(values - result), 0)
        flushed = finite & (abs(values) < smallest) & (abs(values) >= smallest * epsilon) & (result == 0)
        is_exact = problem["operation"] in ("max", "cast")
        least = max(float(smallest * epsilon * (_EXACT if is_exact else 1)), 5e-324)
        units = np.where(flushed | ~finite, 0, distance / np.maximum(unit, least))
        scale = abs(np.where(finite, values, 0)).max()
    relative = min(float(distance.max() / scale), 1e300) if scale else 0.0
    most = min(float(units.max()), 1e300)
    found = {"answer": "right", "units": most, "relative": relative}
    if misplaced.any():
        words = f"NaN or infinity is missing or misplaced in {misplaced.sum()} of {misplaced.size} elements"
        return {**found, "answer": "wrong", "message": words}
    if most > MOST_UNITS:
        at = [int(one) for one in np.unravel_index(int(units.argmax()), units.shape)]
        words = f"the error is {relative:.2g} of the largest number, {most:,.0f} units at {at}"
        if relative <= MOST_UNITS * epsilon and not is_exact:
            return {**found, "answer": "inexact", "message": words}
        shorter = _computed_as(problem, arrays, values, result)
        if (
            not shorter
            and epsilon * most <= TYPES["float32"][0] * MOST_UNITS
            and epsilon == TYPES["float64"][0]
        ):
            shorter = "float32"
        words += f": it is computed in {shorter}" if shorter else ""
        return {**found, "answer": "wrong", "message": words, "computed_as": shorter}
    if flushed.any():
        return {**found, "answer": "flushed", "message": f"{flushed.sum()} subnormal numbers are zero"}
    return found


def _computed_as(problem: dict[str, Any], arrays: list[Any], values: Any, result: Any) -> str:
    """Return the shorter element type to which the inputs were rounded, "" for none."""
    for dtype in ("bfloat16", "float16"):
        if TYPES[dtype][0] > TYPES[problem["dtype"]][0] and not np.iscomplexobj(result):
            with np.errstate(all="ignore"):
                change = exact(problem, [rounded(one, dtype) for one in arrays])[0] - values
                known = np.isfinite(change) & np.isfinite(result)
                # The part of the error that is that change: about 1, or 0 where they have nothing in common.
                part = (change * (result - values))[known].sum() / (change[known] ** 2).sum()
            if _LEAST_PART < part < 2 - _LEAST_PART:
                return dtype
    return ""
