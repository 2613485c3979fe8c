"""What the kernels become for GPUs that are not here: registers, spills, shared memory, matrix units.

Each is compiled through the launch itself, with a driver that only takes note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_kernels.triton.tiles import shared_bytes

if TYPE_CHECKING:
    from tests.kernels.triton.conftest import Run

pytestmark = pytest.mark.slow

#: Bytes of stack that a thread may have: a few spilled registers.
STACK_LIMIT = 48

KERNELS: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": "bfloat16"},
    "float32 as TF32": {"dtype": "float32", "precision": "tf32"},
    "float32 in full": {"dtype": "float32"},
}
CASES: dict[str, dict[str, Any]] = {
    f"sm{major}{minor} {name}": {"capability": [major, minor], **KERNELS[name]}
    for major, minor in ((8, 0), (9, 0), (12, 0))
    for name in KERNELS
}


@pytest.fixture(scope="module")
def found(compiled: Run) -> dict[str, dict[str, Any]]:
    """Compile every case in one process."""
    return dict(zip(CASES, compiled(list(CASES.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_compiles_within_the_limits_of_its_gpu(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    case, seen = CASES[name], found[name]
    assert seen["shared"] <= shared_bytes(tuple(case["capability"]))
    if "stack" not in seen:
        pytest.skip("this Triton has no cuobjdump, which counts registers")
    assert seen["stack"] <= STACK_LIMIT


@pytest.mark.parametrize("name", CASES)
def test_it_multiplies_by_the_matrix_units(name: str, found: dict[str, dict[str, Any]]) -> None:
    if "matrix" not in found[name]:
        pytest.skip("this Triton has no cuobjdump, which lists instructions")
    assert bool(found[name]["matrix"]) != name.endswith("in full")


def test_hopper_uses_its_own_matrix_instructions(found: dict[str, dict[str, Any]]) -> None:
    seen = found["sm90 bfloat16"].get("matrix")
    if seen is None:
        pytest.skip("this Triton has no cuobjdump, which lists instructions")
    assert seen == ["HGMMA"]


def test_a_launch_gets_the_grid_the_stream_and_the_address(
    found: dict[str, dict[str, Any]],
) -> None:
    seen = found["sm90 bfloat16"]
    assert seen["name"] == "batched_matmul"
    # 512 rows and 768 columns in blocks of 128, batch of 4.
    assert seen["grid"] == [4 * 6 * 4, 1, 1]
    assert (seen["stream"], seen["address"]) == (1, 1 << 20)
