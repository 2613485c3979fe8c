"""What hopper.cu computes, run on the CPU by fibers that stand for a GPU's threads, against float64.

hopper_on_host.h copies boxes of tensors, multiplies through descriptors and counts at barriers as the PTX
manual says. Not seen here: orders of warps that are not tried, whether a GPU reads descriptors as we read
the manual, and how fast it is.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy")

import mlbackends_kernels.attention_flash as kernels  # noqa: E402
from mlbackends_kernels.attention_flash import hopper  # noqa: E402
from mlbackends_kernels.cuda.tensor_maps import Map  # noqa: E402

if TYPE_CHECKING:
    from tests.kernels.attention_cuda.conftest import HostKernels

HERE = Path(__file__).parent
_spec = spec_from_file_location("attention_cases", HERE / "cases.py")
assert _spec is not None and _spec.loader is not None
of = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(of)

SOURCE = Path(kernels.__path__[0]) / "hopper.cu"
HEADER = HERE / "hopper_on_host.h"
PASSES = {"hopper_query": "query", "hopper_both": "both"}
ENTRY = """
extern "C" size_t call_bytes() {{ return sizeof(Call); }}
extern "C" size_t shared_bytes() {{ return Tile<{tile}>::SHARED_BYTES; }}
extern "C" const char* run(const Call* call, unsigned grid) {{
  typedef Tile<{tile}> T;
  return hopper::run(grid, T::THREADS, T::SHARED_BYTES, [&] {{ {function}<T>(*call); }});
}}
"""


def case(dtype: str, *sizes: int, **more: Any) -> Any:
    """Return a problem of B, H, L, S, E, and Ev where it differs."""
    return of.Case(dtype, (*sizes, sizes[-1]) if len(sizes) == 5 else sizes, **more)


WINDOW: dict[str, Any] = {"options": {"window": (70, 9)}}
CASES = {
    "plain": case("float16", 2, 2, 65, 39, 64),
    "plain, bfloat16": case("bfloat16", 2, 2, 65, 39, 64),
    "several tiles": case("float16", 1, 1, 200, 300, 64),
    "narrow rows": case("float16", 1, 2, 64, 130, 24, 40),
    "causal": case("float16", 1, 2, 390, 390, 64, options=of.CAUSAL),
    "window": case("bfloat16", 1, 1, 250, 290, 64, **WINDOW),
    "cap and sinks": case("float16", 1, 2, 70, 150, 64, options=of.CAPPED, sinks="same"),
    "one key": case("float16", 1, 1, 64, 1, 8),
    "more rows than keys": case("float16", 1, 1, 500, 100, 64, options=of.CAUSAL),
    "causal to the lower right": case("bfloat16", 1, 1, 210, 333, 64, options=of.LOWER),
    "rows that see no key": case("float16", 1, 2, 333, 210, 64, options=of.LOWER),
    "window to the lower right": case("bfloat16", 1, 1, 210, 333, 64, options=of.LOWER_WINDOW),
    "window before the first key": case(
        "float16", 1, 1, 400, 64, 64, options={"window": (30, 0), "is_causal": True}
    ),
    "window without keys": case(
        "float16", 1, 1, 100, 300, 64, options={"window": (0, 0), "lower_right": True}
    ),
    "sinks of float32, rows without keys": case(
        "bfloat16", 1, 2, 270, 100, 64, sinks="float32", options=of.LOWER
    ),
    "scale": case("float16", 1, 1, 64, 70, 64, options={"scale": 0.5}),
    "groups": case("float16", 2, 6, 64, 140, 16, key_heads=2, value_heads=2),
    "groups, value's own": case("float16", 1, 4, 64, 40, 16, key_heads=2, value_heads=4),
    **{
        f"{name} of one {what}": case("float16", 3, 2, 64, 20, 8, ones=f"{name} {what}")
        for name in ("query", "key", "value")
        for what in ("batch", "head")
    },
    "heads after rows": case("float16", 2, 3, 70, 37, 16, 24, layout="heads after rows"),
    "rows apart": case("bfloat16", 2, 2, 70, 37, 16, 24, layout="rows apart"),
    "scores of thousands": case("float16", 1, 1, 64, 190, 24, size=1000.0, slack=50.0),
    "scores that overflow": case("float16", 1, 1, 64, 190, 24, size=100.0, slack=50.0),
}
WIDE_CASES = {
    "96": case("bfloat16", 1, 1, 150, 270, 96, 88),
    "128, float16": case("float16", 1, 1, 150, 270, 128),
    "128, bfloat16": case("bfloat16", 1, 1, 150, 270, 120, 128),
    "128, causal": case("bfloat16", 1, 2, 290, 290, 128, options=of.CAUSAL),
    "192": case("float16", 1, 1, 150, 270, 192, 160),
    "256": case("bfloat16", 1, 1, 150, 270, 256),
}


GRADIENT_CASES = {
    "plain": case("float16", 2, 2, 65, 39, 64),
    "several tiles": case("bfloat16", 1, 1, 200, 300, 64),
    "causal": case("float16", 1, 2, 290, 290, 64, options=of.CAUSAL),
    "causal to the lower right": case("float16", 1, 1, 210, 333, 64, options=of.LOWER),
    "rows that see no key": case("bfloat16", 1, 1, 333, 210, 64, options=of.LOWER),
    "keys that no row sees": case("float16", 1, 1, 100, 400, 64, options=of.CAUSAL),
    "window": case("bfloat16", 1, 1, 250, 290, 64, **WINDOW),
    "cap and sinks": case("float16", 1, 2, 70, 150, 64, options=of.CAPPED, sinks="same"),
    "groups": case("float16", 2, 6, 64, 140, 16, key_heads=2, value_heads=2),
    "128": case("bfloat16", 1, 1, 150, 170, 120, 128),
    "128, causal, groups": case(
        "float16", 1, 2, 200, 200, 128, key_heads=1, value_heads=1, options=of.CAUSAL
    ),
}


def described(each: Map) -> bytes:
    """Return a tensor map as hopper_on_host.h reads it."""
    sizes, strides, box = each.sizes, each.strides, each.box
    return struct.pack(
        "=Q4Q5I5H5B53x", each.pointer, *strides, 0, *sizes, 0, *box, 0, len(sizes), 3, 0, 0, 0
    )


class Hopper:
    """Launches of hopper.cu, or of a text in its place, on the CPU."""

    def __init__(self, host_kernels: HostKernels, text: str = "") -> None:
        self._host, self._text = host_kernels, text
        self._opened: dict[tuple[str, hopper.Tile], Any] = {}

    def __call__(self, launch: hopper.Launch, dtype: str) -> str:
        """Run a launch, and return what went wrong."""
        tile, call = hopper.tiles(dtype, launch.width)[launch.kernel], launch.argument
        key = PASSES.get(launch.kernel, "forward"), tile
        if key not in self._opened:
            code = self._text or f'#include "{SOURCE}"\n'
            code += ENTRY.format(function=key[0], tile=",".join(map(str, tile)))
            library = self._host.library(code, SOURCE, HEADER)
            self._opened[key] = opened = ctypes.CDLL(str(library))
            assert opened.call_bytes() == ctypes.sizeof(hopper.Call)
            assert opened.shared_bytes() == tile.shared_bytes
            opened.run.restype = ctypes.c_char_p
            opened.run.argtypes = (ctypes.c_void_p, ctypes.c_uint)
        aligned = ctypes.create_string_buffer(ctypes.sizeof(call) + 64)
        at = (ctypes.addressof(aligned) + 63) // 64 * 64
        ctypes.memmove(at, ctypes.addressof(call), ctypes.sizeof(call))
        for offset, each in launch.maps.values():
            ctypes.memmove(at + offset, described(each), 128)
        return str(self._opened[key].run(at, launch.grid).decode())


@pytest.fixture(scope="module")
def on_host(host_kernels: HostKernels) -> Hopper:
    return Hopper(host_kernels)


def errors(on_host: Hopper, each: Any, multiprocessors: int = 3) -> tuple[str, float, float]:
    """Return what went wrong, and the errors of output and logsumexp as shares of their limits."""
    tensors = of.Tensors(each)
    expected, problem, dtype = of.answer(tensors), tensors.problem(), each.dtype
    made = {
        "out": of.guarded(tensors.output_shape, dtype),
        "logsumexp": of.guarded(tensors.output_shape[:-1], "float32"),
    }
    given = tensors.operands()
    given |= {name: of.operand(room, of.kind_of(name, dtype)) for name, room in made.items()}
    assert hopper.serves(problem, given)
    failure = on_host(hopper.forward(problem, given, multiprocessors), dtype)
    out = of.worst(of.numbers(made["out"], dtype), expected.out) / of.LIMITS[dtype] / each.slack
    logarithms = of.worst(made["logsumexp"], expected.logsumexp) / 2e-6
    assert all(map(of.is_guarded, made.values()))
    return failure, out, logarithms


@pytest.mark.parametrize("name", CASES)
def test_hopper_agrees_with_float64(name: str, on_host: Hopper) -> None:
    failure, out, logarithms = errors(on_host, CASES[name])
    assert not failure
    assert out < 1 and logarithms < 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", WIDE_CASES)
def test_wide_rows_agree_with_float64(name: str, on_host: Hopper) -> None:
    failure, out, logarithms = errors(on_host, WIDE_CASES[name])
    assert not failure
    assert out < 1 and logarithms < 1


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_gradients_agree_with_float64(name: str, on_host: Hopper) -> None:
    each = GRADIENT_CASES[name]
    tensors = of.Tensors(each)
    expected, problem, dtype = of.answer(tensors), tensors.problem(), each.dtype
    names = ("query", "key", "value")
    made = {f"grad_{name}": of.guarded(tensors.named[name].shape, dtype) for name in names}
    summary = np.zeros((*tensors.output_shape[:-1], 4), "float32")
    summary[..., 0] = (of.numbers(tensors.grad_out, dtype) * expected.out).sum(-1)
    summary[..., 1] = expected.logsumexp
    coming = of.laid_out(tensors.grad_out, "contiguous")
    given = tensors.operands() | {
        "grad_out": of.operand(coming, dtype),
        "summary": of.operand(summary, "float32"),
        **{name: of.operand(room, dtype) for name, room in made.items()},
    }
    assert hopper.serves(problem, given)
    for launch in hopper.backward(problem, given, 3):
        assert not on_host(launch, dtype)
    largest = max(float(np.abs(expected.gradients[whose]).max()) for whose in names)
    for whose in names:
        found = of.numbers(made[f"grad_{whose}"], dtype)
        assert of.worst(found, expected.gradients[whose], largest) < 4 * of.LIMITS[dtype], whose
        assert of.is_guarded(made[f"grad_{whose}"])


@pytest.mark.parametrize("multiprocessors", [1, 7])
def test_blocks_share_the_work_in_any_number(multiprocessors: int, on_host: Hopper) -> None:
    failure, out, _ = errors(on_host, CASES["causal"], multiprocessors)
    assert not failure and out < 1


def test_nothing_of_another_head_leaks(on_host: Hopper) -> None:
    each = case("float16", 1, 3, 70, 75, 24)
    tensors = of.Tensors(each)
    right, problem = of.answer(tensors).out[:, 1], tensors.problem()
    for name in ("query", "key", "value"):
        tensors.named[name][:, ::2] = np.nan
    out = of.guarded(tensors.output_shape, "float16")
    given = tensors.operands() | {"out": of.operand(out, "float16")}
    assert not on_host(hopper.forward(problem, given, 1), "float16")
    assert of.worst(of.numbers(out[:, 1], "float16"), right) < of.LIMITS["float16"]
    assert np.isnan(out[:, ::2].astype("float32")).all()


BROKEN = {
    "keys are not released": (
        "        release(tile.empty(T::FIRST + keys.stage));\n        keys.next();\n",
        "        keys.next();\n",
        "for ever",
    ),
    "values are not waited for": (
        "        wait(tile.full(T::SECOND + values.stage), values.parity);\n        add",
        "        add",
        "",
    ),
    "keys are overwritten too early": (
        "wait(tile.empty(T::FIRST + first.stage), first.parity ^ 1);",
        "",
        "",
    ),
    "too few bytes are expected": ("arrive_and_expect(barrier, ROWS", "arrive_and_expect(barrier, 2", ""),
    "products are not waited for": ("_products<1>(rows.scores)", "_products<2>(rows.scores)", ""),
    "products begin unfenced": ("        begin_products();\n", "", "wgmma.fence"),
    "the swizzle is another": ("swizzle_128 = 1ull << 62", "swizzle_128 = 2ull << 62", "swizzle"),
    "groups of 8 rows lie elsewhere": ("group = 1024 >> 4", "group = 512 >> 4", ""),
    "values lie otherwise": ("matrix_at(right + k * 16 * 128", "matrix_at(right + k * 16", ""),
    "barriers count too many": ("4 * T::GROUPS);\n    }", "4 * T::GROUPS + 1);\n    }", "for ever"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_shows(name: str, host_kernels: HostKernels) -> None:
    before, after, message = BROKEN[name]
    text = SOURCE.read_text(encoding="utf-8")
    assert before in text
    broken = Hopper(host_kernels, text.replace(before, after))
    failure, out, _ = errors(
        broken, case("float16", 1, 1, 200, 700, 64, size=4.0, options=of.LOWER)
    )
    assert message in failure
    assert failure or not out < 1


def serves(each: Any, **pointers: int) -> bool:
    tensors = of.Tensors(each)
    given = tensors.operands()
    for name, by in pointers.items():
        given[name].pointer += by
    return hopper.serves(tensors.problem(), given)


def test_only_what_it_can_read_is_served() -> None:
    good = case("float16", 1, 2, 64, 40, 16)
    assert serves(good)
    for layout in ("columns first", "one element on", "rows backwards"):
        assert not serves(case("float16", 1, 2, 64, 40, 16, layout=layout))
    assert not serves(case("float16", 1, 2, 64, 40, 12)), "rows of 24 bytes"
    assert not serves(case("float16", 1, 2, 64, 40, 16, 7)), "an odd width"
    assert not serves(good, key=8) and serves(good, key=16)
    assert not serves(case("float16", 1, 2, 63, 40, 16)), "few rows"
    assert not serves(case("float16", 1, 2, 64, 0, 16)), "no key"
    assert not serves(case("float16", 1, 2, 64, 40, 16, capability="10.0"))
    assert not serves(case("float16", 1, 2, 64, 40, 16, capability="8.0"))
    assert not serves(case("float16", 1, 2, 64, 40, 16, options={"scale": -1.0}))
    packed = {"query_lengths": (100, 28), "key_lengths": (30, 10)}
    assert not serves(of.Case("float16", (1, 2, 128, 40, 16, 16), **packed))


@pytest.mark.parametrize("name", ["query", "key", "value", "grad_out"])
def test_rows_that_repeat_or_overlap_are_not_served(name: str) -> None:
    """As the gradient that comes of a sum over the rows: TMA takes a row once, and zeros after it."""
    tensors = of.Tensors(case("float16", 1, 2, 64, 40, 16))
    given = tensors.operands() | {"grad_out": of.operand(tensors.grad_out, "float16")}
    assert hopper.serves(tensors.problem(), given)
    batch, head, _, column = given[name].strides
    for step in (0, 8):
        given[name].strides = batch, head, step, column
        assert not hopper.serves(tensors.problem(), given)


def test_a_map_has_the_layout_of_its_tensor() -> None:
    tensors = of.Tensors(
        case("bfloat16", 2, 3, 70, 150, 96, layout="heads after rows", ones="value head")
    )
    given = tensors.operands()
    given["out"] = of.operand(np.zeros(tensors.output_shape, "uint16"), "bfloat16")
    launch = hopper.forward(tensors.problem(), given, 132)
    at = [tensors.named[name].ctypes.data for name in ("query", "key", "value")]
    assert [each for _, each in launch.maps.values()] == [
        Map(at[0], "bfloat16", (96, 70, 3, 2), (576, 192, 40320), (64, 128, 1, 1)),
        Map(at[1], "bfloat16", (96, 150, 3, 2), (576, 192, 86400), (64, 176, 1, 1)),
        Map(at[2], "bfloat16", (96, 150, 1, 2), (192, 192, 28800), (64, 176, 1, 1)),
    ]
    call = launch.argument
    assert [(each.group, each.batches) for each in (call.left[0], *call.right)] == [
        (1, 2),
        (1, 2),
        (3, 2),
    ]
    assert (launch.grid, call.blocks, call.per_unit, call.pieces) == (6, 1, 1, 6)


def test_pieces_of_a_causal_problem_have_the_same_work() -> None:
    for blocks in (8, 9):
        rows = 192 * blocks
        tensors = of.Tensors(case("float16", 1, 1, rows, rows, 8, options=of.CAUSAL))
        given = tensors.operands() | {
            "out": of.operand(np.zeros((1, 1, rows, 8), "float16"), "float16")
        }
        call = hopper.forward(tensors.problem(), given, 132).argument
        assert call.per_unit == call.pieces == -(-call.blocks // 2)
