"""dropout.h in each instruction set of this CPU: it keeps what the rule in numpy keeps."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import compilation
import pytest

np = pytest.importorskip("numpy")

from mlbackends_kernels.attention_cpu import library  # noqa: E402
from mlbackends_kernels.tensors import dropout  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KINDS = {"single": np.float32, "double": np.float64}

try:
    LEVELS = library.usable_levels()
except library.NotBuilt:
    LEVELS = ()
pytestmark = pytest.mark.skipif(not LEVELS, reason="the library of attention was not built")


@pytest.fixture(scope="module", params=LEVELS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    native: Any = compilation
    flags = native.levels_of(native.running())[request.param].split()
    made = tmp_path_factory.mktemp("dropout") / "dropout.so"
    include = f"-I{ROOT / 'kernels' / 'native' / 'attention'}"
    source = str(HERE / "dropout_factors.cpp")
    command = [*native.find_compiler(), *native.CPP_FLAGS, *flags, "-fvisibility=default", include]
    subprocess.run([*command, "-shared", "-o", str(made), source], check=True)
    return ctypes.CDLL(str(made))


def factors(
    compiled: Any, kind: str, seed: int, probability: float, place: tuple[int, int], shape: Any
) -> Any:
    """Return what each weight of a head is multiplied by. place: batch and head."""
    found = np.full(shape, np.nan, KINDS[kind])
    call, whole = compiled.dropout_factors, ctypes.c_int64
    call.argtypes = (whole, whole, ctypes.c_double, ctypes.c_uint64, whole, whole, ctypes.c_int)
    call(*shape, probability, seed, *place, kind == "double", ctypes.c_void_p(found.ctypes.data))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 0x299F31D0A4093822, 2**64 - 1])
@pytest.mark.parametrize("probability", [1e-9, 0.1, 0.5, 0.999])
def test_it_keeps_the_weights_that_the_rule_keeps(
    compiled: Any, kind: str, seed: int, probability: float
) -> None:
    kept = dropout.keep_mask(seed, probability, (3, 5), range(37), 41)[2, 3]
    wanted = kept * KINDS[kind](1 / (1 - probability))
    assert np.array_equal(factors(compiled, kind, seed, probability, (2, 3), (37, 41)), wanted)


def test_the_probability_one_keeps_nothing(compiled: Any) -> None:
    assert not factors(compiled, "single", 1, 1.0, (0, 0), (64, 512)).any()
