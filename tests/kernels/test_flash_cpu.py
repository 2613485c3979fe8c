"""flash_cpu at every instruction set of this CPU: its numerics, its memory, its threads, what it says.

test_every_attention_backend.py holds it, with the others, to float64 on any problem.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compilation
import numpy as np
import pytest
from cases import STEP, numbers, spec, stored

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.dispatch import choose
from mlbackends_kernels.attention_cpu import forward, library, threads
from mlbackends_kernels.attention_cpu.formula import attend as attend_plainly

if TYPE_CHECKING:
    from collections.abc import Callable

backend = registry.load("mlbackends_kernels", "flash_cpu").FlashCpu()
DTYPES = ("float16", "bfloat16", "float32", "float64")
TOLERANCES = Path(__file__).with_name("native") / "tolerance.h"
try:
    LEVELS = library.usable_levels()
except library.NotBuilt:
    LEVELS = ()
built = pytest.mark.skipif(not LEVELS, reason="the library of attention was not built")


def told(arrays: Any, dtype: str, mask: Any = None, mask_dtype: str = "", **more: Any) -> Any:
    query, key, value = (spec(array, dtype) for array in arrays)
    return AttentionProblem(
        query=query,
        key=key,
        value=value,
        mask=None if mask is None else spec(mask, mask_dtype or dtype),
        **more,
    )


def both(arrays: Any, dtype: str, mask: Any = None, mask_dtype: str = "", **more: Any) -> tuple[Any, Any]:
    """Return the library's result and log-sum-exp, for arrays as `stored` gives them."""
    problem = told(arrays, dtype, mask, mask_dtype, **more)
    assert backend.unsupported_reasons(problem) == ()
    query, key, value = arrays
    out, logsumexp = forward.attend(problem, query, key, value, mask, logsumexp=True)
    return numbers(out, dtype), logsumexp


def run(arrays: Any, dtype: str = "float32", *, mask: Any = None, **more: Any) -> Any:
    return both(arrays, dtype, mask, "", **more)[0]


def by_formula(arrays: Any, dtype: str, mask: Any, mask_dtype: str, inner: str, more: Any) -> Any:
    """Return what the plain formula gives, in an inner type, rounded to the elements' own."""
    problem = told(arrays, dtype, mask, mask_dtype, inner_dtype=inner, **more)
    query, key, value = arrays
    return attend_plainly(problem, query, key, value, mask)[0]


def random_arrays(*shapes: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [stored(random.standard_normal(shape), dtype) for shape in shapes]


# ---- against float64 ----------------------------------------------------------------


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [1, 2, 3, 8, 20])
def test_many_keys_for_few_rows_are_split_and_joined(name: str, length: int) -> None:
    arrays = random_arrays((1, 4, length, 40), (1, 2, 5001, 40), (1, 2, 5001, 40))
    mask = np.random.default_rng(2).standard_normal((1, 4, 1, 5001)).astype("f4")
    plain_case: dict[str, Any] = {"enable_gqa": True}
    causal: dict[str, Any] = {"is_causal": True, "lower_right": True, "enable_gqa": True}
    for seen, more in ((mask, plain_case), (None, causal)):
        with library.lowered(name):
            out = both(arrays, "float32", seen, **more)[0]
        wanted = by_formula(arrays, "float32", seen, "", "float64", more)
        assert np.abs(out - wanted).max() < 2e-7


@built
@pytest.mark.parametrize("name", LEVELS)
def test_every_number_of_16_bits_is_read_and_rounded_right(name: str) -> None:
    """With one key, the result is the value; some instructions take what is subnormal for zero."""
    patterns = np.arange(1 << 16, dtype="uint16").reshape(1, 64, 1, 1024)
    with library.lowered(name):
        for dtype in ("float16", "bfloat16"):
            value = patterns.view("float16") if dtype == "float16" else patterns
            for length in (1, 10):
                query, key = (stored(np.ones((1, 64, rows, 4)), dtype) for rows in (length, 1))
                out = run([query, key, value], dtype)
                wanted = np.broadcast_to(numbers(value, dtype), out.shape)
                if dtype == "bfloat16" and name in library.BFLOAT16_PAIRS:
                    subnormal = np.abs(wanted) < 2.0**-126
                    assert not out[subnormal].any()
                    wanted = np.where(subnormal, 0, wanted)
                assert np.array_equal(out, wanted, equal_nan=True)


# ---- numerics -----------------------------------------------------------------------


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [1, 3, 40, 300])
def test_a_row_whose_scores_all_overflow_is_nan(name: str, length: int) -> None:
    with library.lowered(name):
        for dtype, size in (("bfloat16", 1e20), ("float32", 1e20), ("float64", 1e160)):
            x = stored(np.full((1, 1, length, 8), size), dtype)
            arrays = [
                stored(np.full((1, 1, 2, 8), -size), dtype),
                x,
                stored(np.ones(x.shape), dtype),
            ]
            for causal in (False, True):
                out, logsumexp = both(arrays, dtype, is_causal=causal)
                assert np.isnan(out).all() and np.isnan(logsumexp).all()
            mask = np.zeros((2, length), bool)
            mask[1, -1] = True
            for array, kind in (
                (mask, "bool"),
                (np.where(mask, 0, -np.inf).astype("f4"), "float32"),
            ):
                out, _ = both(arrays, dtype, array, kind)
                assert not out[..., 0, :].any() and np.isnan(out[..., 1, :]).all()


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [2, 70])
def test_large_scores_do_not_overflow(name: str, length: int) -> None:
    with library.lowered(name):
        for dtype, size in (("float16", 3e4), ("bfloat16", 1e17), ("float32", 1e18)):
            x = stored(np.full((1, 1, length, 64), size), dtype)
            assert np.allclose(run([x, x, x], dtype), numbers(x, dtype), rtol=1e-6)
        arrays = random_arrays((1, 2, length, 8), (1, 2, 90, 8), (1, 2, 90, 8))
        spread = run(arrays, scale=1e6)
        best = (arrays[0].astype("f8") @ arrays[1].astype("f8").swapaxes(-1, -2)).argmax(-1)
        assert np.allclose(spread, np.take_along_axis(arrays[2], best[..., None], -2), atol=1e-2)


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [2, 70])
def test_the_least_number_as_a_mask_hides_but_not_alone(name: str, length: int) -> None:
    """What many programs add for a key that is not seen: where all are so, they weigh alike."""
    arrays = random_arrays((1, 1, length, 8), (1, 1, 30, 8), (1, 1, 30, 8))
    mask = np.zeros((length, 30), "float32")
    mask[0] = np.finfo("float32").min
    mask[1, 5:] = np.finfo("float32").min
    with library.lowered(name):
        out = run(arrays, mask=mask)
        few = [arrays[0], arrays[1][..., :5, :], arrays[2][..., :5, :]]
        assert np.allclose(out[0, 0, 0], arrays[2].mean(-2))
        assert np.allclose(out[0, 0, 1], run(few)[0, 0, 1])


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [2, 70])
def test_no_number_and_infinity_go_where_they_must(name: str, length: int) -> None:
    query, key, value = random_arrays((1, 1, length, 8), (1, 1, 90, 8), (1, 1, 90, 8))
    with library.lowered(name):
        for number in (np.nan, np.inf):
            bad = query.copy()
            bad[0, 0, 1, 3] = number
            out = run([bad, key, value])
            assert np.isnan(out[0, 0, 1]).all() and np.isfinite(np.delete(out, 1, 2)).all()
        bad = key.copy()
        bad[0, 0, 7] = np.nan
        assert np.isnan(run([query, bad, value])).all()
        mask = np.zeros((length, 90), "float32")
        mask[:, 7] = -np.inf
        assert np.isnan(run([query, bad, value], mask=mask)).all()
        bad = value.copy()
        bad[0, 0, 7, 2] = np.inf
        out = run([query, key, bad])
        assert np.isposinf(out[..., 2]).all() and np.isfinite(np.delete(out, 2, 3)).all()
        mask = np.zeros((length, 90), "float32")
        mask[1, 4] = np.nan
        out = run([query, key, value], mask=mask)
        assert np.isnan(out[0, 0, 1]).all() and np.isfinite(np.delete(out, 1, 2)).all()


DROPPING: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "a few rows in parts": ((1, 2, 5, 20), (1, 2, 9000, 20)),
    "many rows in parts": ((1, 2, 20, 20), (1, 2, 9000, 20)),
}


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", DROPPING)
def test_dropout_drops_what_the_formula_drops(name: str, dtype: str, case: str) -> None:
    query, key = DROPPING[case]
    arrays = random_arrays(query, key, key, dtype=dtype)
    more: dict[str, Any] = {"dropout": 0.3, "seed": -(1 << 62) - 5}
    with library.lowered(name):
        out, logsumexp = both(arrays, dtype, **more)
        whole = both(arrays, dtype, **{**more, "dropout": 0.0})
    wanted = by_formula(arrays, dtype, None, "", "float64", more)
    assert np.abs(out - wanted).max() <= 8 * STEP[dtype] * max(1, np.abs(wanted).max())
    assert np.array_equal(logsumexp, whole[1])
    assert not np.allclose(out, whole[0], atol=0.01)


@built
def test_without_a_seed_the_owner_of_the_tensors_draws_one() -> None:
    arrays = random_arrays((1, 2, 40, 16), (1, 2, 30, 16), (1, 2, 30, 16))
    problem = told(arrays, "float32", dropout=0.5)
    results = []
    for seed in (1, 1, 2):
        np.random.seed(seed)  # noqa: NPY002  what users seed
        results.append(backend.run(problem, *arrays))
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


# ---- its word -----------------------------------------------------------------------


def spec_of(shape: tuple[int, ...], dtype: str = "float32", **more: Any) -> TensorSpec:
    return TensorSpec(shape, dtype, **more)


def asked(shape: tuple[int, ...] = (2, 8, 100, 64), dtype: str = "float32", **more: Any) -> Any:
    x = spec_of(shape, dtype)
    return AttentionProblem(**{"query": x, "key": x, "value": x, **more})


@built
def test_it_comes_before_the_formula_and_says_when_it_was_not_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert choose(asked(is_causal=True)).chosen == "flash_cpu"
    assert choose(asked(inner_dtype="float64")).chosen == "math"

    monkeypatch.setattr(library, "path", lambda name=library.FILE: str(tmp_path / name))
    library.library.cache_clear()
    try:
        (reason,) = backend.missing_parts()
        assert reason.code == "missing-part" and "without a C++ compiler" in reason.message
        assert choose(asked(is_causal=True)).chosen == "math"
        with pytest.raises(NoBackend, match="flash_cpu cannot run here"):
            backend.run(asked((5, 4)), *[np.ones((5, 4), "f4")] * 3)
        Path(library.path()).write_bytes(b"no library")
        assert "cannot be opened" in backend.missing_parts()[0].message
    finally:
        library.library.cache_clear()


# ---- memory, layout -------------------------------------------------------------------


@built
def test_the_result_lies_as_the_query_does() -> None:
    there = np.ones((2, 7, 3, 4), "f4").transpose(0, 2, 1, 3)
    out = backend.run(told([there] * 3, "float32"), there, there, there)
    assert out.transpose(0, 2, 1, 3).flags.c_contiguous
    here = np.ones((2, 3, 7, 4), "f4")
    assert backend.run(told([here] * 3, "float32"), here, here, here).flags.c_contiguous


@built
def test_elements_across_their_own_size_are_copied_first() -> None:
    memory = np.zeros(2 * 5 * 4 * 4 + 1, "u1")
    crooked = memory[1:].view("f4").reshape(1, 2, 5, 4)
    crooked[:] = random_arrays((1, 2, 5, 4))[0]
    assert not crooked.flags.aligned
    assert np.array_equal(run([crooked] * 3), run([crooked.copy()] * 3))


@built
@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thread_needs_little_memory_at_any_length(name: str, dtype: str) -> None:
    abi, scratch = library.abi(), library.library().mlbackends_attention_scratch
    with library.lowered(name):
        for width in (32, 64, 128, 256):
            needed = []
            for keys in (1 << 10, 1 << 16, 1 << 22):
                problem = abi.structures["problem"](
                    batch=1,
                    heads=16,
                    query_length=4096,
                    key_length=keys,
                    head_dim=width,
                    value_dim=width,
                    key_group=1,
                    value_group=1,
                    element=abi.elements[dtype],
                    mask_element=abi.elements["bool"],
                    scale=1.0,
                    level=library.level(),
                    threads=1,
                )
                needed.append(scratch(ctypes.byref(problem)))
            assert len(set(needed)) == 1 and needed[0] < 1 << 20, (width, needed)


# ---- threads ------------------------------------------------------------------------


@built
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_result_does_not_depend_on_the_threads(
    any_threads: Callable[[int], None], dtype: str, dropout: float
) -> None:
    shapes = [((2, 3, 200, 40), (2, 3, 300, 40)), ((1, 2, 1, 64), (1, 2, 9000, 64))]
    for query, key in shapes:
        arrays = random_arrays(query, key, key, dtype=dtype)
        results = []
        for count in (1, 2, 3, 7):
            any_threads(count)
            results.append(run(arrays, dtype, is_causal=query[2] > 1, dropout=dropout, seed=7))
        assert all(np.array_equal(results[0], result) for result in results[1:])


@built
def test_many_threads_of_python_may_call_at_once(any_threads: Callable[[int], None]) -> None:
    any_threads(3)
    arrays = [random_arrays(*[(1, 4, 90, 32)] * 3, seed=seed) for seed in range(6)]
    wanted = [run(array) for array in arrays]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(30):
            same = np.array_equal(run(arrays[number]), wanted[number])
            wrong.extend(() if same else (number,))

    running = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong


BEFORE = """
import os, sys, signal, time
import numpy as np
import mlbackends
from mlbackends_kernels.attention_cpu import forward, library, threads
forward.worth = lambda operations, moved: 4
random = np.random.default_rng(0)
x = random.standard_normal((1, 4, 200, 32)).astype("f4")
def attention(): return mlbackends.scaled_dot_product_attention(x, x, x)
"""


def in_process(program: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEFORE + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@built
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_after_fork_has_threads_of_its_own() -> None:
    program = """
wanted = attention()
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        same = all(np.array_equal(attention(), wanted) for _ in range(20))
        tasks = len(os.listdir("/proc/self/task"))
        os._exit(0 if same and tasks == 4 else 1)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children], np.array_equal(attention(), wanted))
"""
    assert in_process(program) == "[0, 0, 0, 0] True"


@built
def test_the_end_of_a_process_waits_for_no_thread() -> None:
    assert in_process("attention(); print('done')") == "done"


@built
def test_an_interrupt_ends_a_long_call_soon() -> None:
    program = """
import threading
x = np.ones((1, 64, 4096, 64), "f4")
forward.worth = lambda operations, moved: 1
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    for _ in range(200): attention()
except KeyboardInterrupt:
    print("interrupted")
"""
    with_time = "import time; start = time.monotonic()\n" + program
    assert in_process(with_time + "assert time.monotonic() - start < 60\n") == "interrupted"


@built
@pytest.mark.parametrize(("heads", "rows", "keys"), [(1, 8, 1 << 40), (40, 64, 1 << 34)])
def test_an_interrupt_ends_a_call_with_endless_keys(heads: int, rows: int, keys: int) -> None:
    """The keys are one row in memory: so many take hours, and no block of rows waits for their end."""
    program = f"""
import threading
x = np.ones((1, {heads}, {rows}, 64), "f4")
keys = np.broadcast_to(x[:, :1, :1], (1, {heads}, {keys}, 64))
attention()  # imports before the signal
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    mlbackends.scaled_dot_product_attention(x, keys, keys)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert in_process(program) == "interrupted"


@built
@pytest.mark.parametrize("kind", ["TimeoutError", "ValueError", "RuntimeError"])
def test_what_a_signal_handler_raises_arrives(kind: str) -> None:
    """After the first call, which imports: Python's importer takes a TimeoutError for the system's."""
    program = f"""
import time
from mlbackends.sdpa import scaled_dot_product_attention
def handler(*_): raise {kind}("of the user")
signal.signal(signal.SIGALRM, handler)
x, raised = np.ones((1, 2, 64, 16), "f4"), 0
scaled_dot_product_attention(x, x, x)
for trial in range(20):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0004 * (trial + 2))
        end = time.monotonic() + 5
        while time.monotonic() < end: scaled_dot_product_attention(x, x, x)
    except {kind}: raised += 1
print(raised)
"""
    assert in_process(program) == "20"


@built
def test_other_threads_of_python_run_meanwhile() -> None:
    program = """
import threading
x = np.ones((1, 16, 2048, 64), "f4")
forward.worth = lambda operations, moved: 1
counted = 0
ended = False
def count():
    global counted
    while not ended:
        counted += 1
        time.sleep(0.001)
counter = threading.Thread(target=count)
counter.start()
attention()
ended = True
counter.join()
print(counted > 3)
"""
    assert in_process(program) == "True"


def test_the_threads_are_the_least_of_all_limits() -> None:
    program = """if True:
        import os, sys, mlbackends
        from mlbackends_kernels.attention_cpu import threads
        many = threads.get_num_threads()
        os.environ["OMP_NUM_THREADS"] = "1,2"
        said = [threads.get_num_threads()]
        os.environ["OMP_NUM_THREADS"] = "many"
        said.append(threads.get_num_threads() == many <= os.cpu_count())
        sys.modules["torch"] = type("torch", (), {"get_num_threads": lambda: 1})
        said += [threads.get_num_threads(), threads.worth(10**9, 0)]
        del sys.modules["torch"]
        said.append(threads.worth(10**9, 0) == many)
        mlbackends.set_num_threads(1)
        said += [mlbackends.get_num_threads(), threads.worth(10**9, 0)]
        print(*said)
        """
    assert in_process(program, OMP_NUM_THREADS="") == "1 True 1 1 True 1 1"
    for bad in (0, -1, "2", True, 1.0, None):
        with pytest.raises(RuntimeError, match="set_num_threads expects"):
            threads.set_num_threads(bad)  # type: ignore[arg-type]


# ---- instruction sets -----------------------------------------------------------------


X86 = ("baseline", "avx2", "avx512")
LATER_X86 = (*X86, "avx512_bf16", "amx_bf16")
ARM = ("neon", "neon_bf16", "sve256")


@pytest.mark.parametrize(
    ("usable", "capability", "wanted"),
    [
        (X86, "", "avx512"),
        (X86, "default", "baseline"),
        (X86, "avx2", "avx2"),
        (X86, "avx512", "avx512"),
        (X86, "AVX2", "avx512"),
        (X86, "sve256", "avx512"),
        (X86[:2], "avx512", "avx2"),
        (LATER_X86, "", "amx_bf16"),
        (LATER_X86, "avx512", "amx_bf16"),
        (LATER_X86[:4], "", "avx512_bf16"),
        (LATER_X86, "avx2", "avx2"),
        (LATER_X86, "default", "baseline"),
        (ARM, "", "sve256"),
        (ARM, "default", "neon"),
        (ARM, "sve256", "sve256"),
        (ARM, "sve128", "neon_bf16"),
        (ARM, "avx2", "sve256"),
        (("neon", "neon_bf16"), "sve256", "neon_bf16"),
        (("neon", "sve512"), "sve256", "neon"),
        (("baseline",), "sve256", "baseline"),
    ],
)
def test_a_capability_leaves_the_levels_up_to_its_own(
    usable: tuple[str, ...], capability: str, wanted: str
) -> None:
    assert library.left_by(capability, usable)[-1] == wanted


@built
@pytest.mark.parametrize("value", ["default", "avx2", "sve256", "nonsense"])
def test_the_variable_lowers_the_instruction_set(value: str) -> None:
    program = "print(library.compiled_levels()[library.level()])"
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ATEN_CPU_CAPABILITY": value},
    )
    assert done.stdout.strip() == library.left_by(value, library.usable_levels())[-1]


def test_every_level_that_is_compiled_is_in_the_librarys_table() -> None:
    declared = (Path(compilation.__file__).parents[1] / "native/attention/levels.cpp").read_text()
    for names in (compilation.PORTABLE, *compilation.LEVELS.values()):
        assert [name for name in names if f"DECLARED({name});" not in declared] == []
        places = [declared.index(f"CHOICE({name}, ") for name in names]
        assert places == sorted(places)


@pytest.mark.skipif(sys.platform != "linux", reason="the library is for Linux")
def test_a_level_that_came_after_the_compiler_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that takes no flag but those of old, and writes down which files it compiled."""
    compiler, seen = tmp_path / "cc", tmp_path / "seen"
    compiler.write_text(
        f'#!/bin/sh\necho "$*" >>{seen}\n'
        'case "$*" in *-march=* | *-mavx* | *-mamx*) exit 1 ;; esac\n'
        'for word; do [ "$last" = -o ] && : >"$word"; last=$word; done\n'
    )
    compiler.chmod(0o755)
    monkeypatch.delenv("MLBACKENDS_OBJECTS", raising=False)
    for machine, least in (("x86_64", "baseline"), ("aarch64", "neon")):
        native: Any = compilation
        native.compile_attention(
            tmp_path / f"{machine}.so", [str(compiler)], native.Target(machine, libc="any")
        )
        linked = seen.read_text().splitlines()[-1]
        assert f"/kernel_{least}.o" in linked and linked.count("/kernel_") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the library is for Linux")
def test_objects_that_are_kept_are_compiled_once_from_one_text_by_one_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler whose preprocessor copies the source, and that writes down what it compiled."""
    compiler, seen, version = tmp_path / "cc", tmp_path / "seen", tmp_path / "version"
    compiler.write_text(
        "#!/bin/sh\n"
        'for word; do [ "$last" = -o ] && made=$word; last=$word; done\n'
        'case "$*" in\n'
        '*" -E "*) cat "$last" >"$made" ;;\n'
        f'*" -c "*) echo "$made" >>{seen}; echo "$*" >"$made" ;;\n'
        f"*-v) cat {version} >&2 ;;\n"
        f'*) echo "$*" | tr " " "\\n" | grep "\\.o$" | xargs cat >"$made" ;;\n'
        "esac\n"
    )
    compiler.chmod(0o755)
    version.write_text("one")
    root = tmp_path / "tree"
    folder = root / "kernels" / "native" / "attention"
    folder.mkdir(parents=True)
    for stem in ("kernel", "gradients_kernel", "threads"):
        (folder / f"{stem}.cpp").write_text(stem)
    monkeypatch.setenv("MLBACKENDS_OBJECTS", str(tmp_path / "objects"))

    def compiled(name: str, *extra: str) -> tuple[int, str]:
        """Return how many files were compiled, and what the library holds."""
        seen.write_text("")
        file = tmp_path / name
        native: Any = compilation
        target = native.Target("riscv64", libc="any")
        native.compile_attention(file, [str(compiler)], target, root=root, extra=extra)
        return len(seen.read_text().splitlines()), file.read_text()

    first, held = compiled("a.so")
    assert first == 3
    assert len(held.splitlines()) == 3
    assert compiled("b.so") == (0, held)
    assert compiled("c.so", "-O1")[0] == 3
    (folder / "threads.cpp").write_text("other threads")
    assert compiled("d.so")[0] == 1
    version.write_text("two")
    assert compiled("e.so")[0] == 3


@built
def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="this CPU cannot run 'sse9'"), library.lowered("sse9"):
        pass


def are_pairs_right() -> None:
    for seed, (length, keys, width, value_width) in enumerate(
        [(70, 131, 64, 64), (33, 300, 33, 40), (200, 47, 16, 7), (1, 900, 64, 64)]
    ):
        shapes = (2, 4, length, width), (2, 2, keys, width), (2, 2, keys, value_width)
        arrays = random_arrays(*shapes, dtype="bfloat16", seed=seed)
        mask = np.random.default_rng(seed).random((length, keys)) < 0.7
        options: list[tuple[Any, dict[str, Any]]] = [
            (None, {}),
            (None, {"is_causal": True}),
            (mask, {"scale": -0.2}),
            (None, {"scale": 0.0}),
            (None, {"dropout": 0.3, "seed": 5}),
        ]
        for seen, more in options:
            more = {**more, "enable_gqa": True}
            out = both(arrays, "bfloat16", seen, "bool", **more)[0]
            wanted = by_formula(arrays, "bfloat16", seen, "bool", "float64", more)
            # Weights are rounded to bfloat16, as in torch, and so is the result.
            assert np.abs(out - wanted).max() < 2.0**-8 * np.abs(wanted).max() + 2.0**-9
    nan = arrays[1].copy()
    nan[0, 0, 3, 2] = 0x7FC0
    out = run([arrays[0], nan, arrays[2]], "bfloat16", enable_gqa=True)
    assert np.isnan(out[0, :2]).all() and np.isfinite(out[0, 2:]).all()


@built
@pytest.mark.nightly
def test_pairs_and_tiles_of_bfloat16_are_right_where_they_are_emulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What AVX-512 BF16 and AMX multiply, computed by other instructions, on a CPU that lacks them."""
    if "avx512" not in LEVELS:
        pytest.skip("it is emulated by AVX-512")
    native: Any = compilation
    file = tmp_path / "attention.so"
    levels = native.LEVELS["x86_64"]
    for name in ("baseline", "avx2"):  # nothing is made of these
        del levels[name]
    if not os.environ.get("MLBACKENDS_OBJECTS"):  # else they may be there already
        for name in ("avx512", "amx_bf16"):  # hardly called: they need not be fast
            levels[name] += " -O0"
    extra = ("-DMLBACKENDS_EMULATED_PAIRS", f"-I{TOLERANCES.parent}")
    native.compile_attention(file, native.find_compiler(), native.running(), extra=extra)
    monkeypatch.setattr(library, "path", lambda _=library.FILE: str(file))
    library.library.cache_clear()
    try:
        for name in ("avx512_bf16", "amx_bf16"):
            with library.lowered(name):
                are_pairs_right()
    finally:
        library.library.cache_clear()
