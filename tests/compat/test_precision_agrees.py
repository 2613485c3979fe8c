"""The tree of float32 precisions and the older switches, step by step beside torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builds import IS_NEWEST
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Iterator

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORDS = ("none", "ieee", "tf32", "bf16", "default", "TF32", *(["bfx9"] if IS_NEWEST else []))
ENTRIES = {
    "fp32_precision": ("generic", "all"),
    "mkldnn.fp32_precision": ("mkldnn", "all"),
    "mkldnn.matmul.fp32_precision": ("mkldnn", "matmul"),
    "mkldnn.conv.fp32_precision": ("mkldnn", "conv"),
    "mkldnn.rnn.fp32_precision": ("mkldnn", "rnn"),
    "cudnn.fp32_precision": ("cuda", "all"),
    "cuda.matmul.fp32_precision": ("cuda", "matmul"),
    "cudnn.conv.fp32_precision": ("cuda", "conv"),
    "cudnn.rnn.fp32_precision": ("cuda", "rnn"),
}
OLDER = {
    "cuda.matmul.allow_tf32": (
        torch._C._get_cublas_allow_tf32,
        torch._C._set_cublas_allow_tf32,
        st.sampled_from([True, False, 1, None]),
    ),
    "cudnn.allow_tf32": (
        torch._C._get_cudnn_allow_tf32,
        torch._C._set_cudnn_allow_tf32,
        st.sampled_from([True, False, 0, "1"]),
    ),
    "float32_matmul_precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        st.sampled_from(["highest", "high", "medium"]),
    ),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(ENTRIES)), st.sampled_from(WORDS)),
        *(st.tuples(st.just(name), values) for name, (_, _, values) in OLDER.items()),
    ),
    max_size=8,
)


def torchs(name: str) -> Any:
    """Return what torch's getter of a switch returns, or the type of what it raises."""
    try:
        if name in ENTRIES:
            return torch._C._get_fp32_precision_getter(*ENTRIES[name])
        return OLDER[name][0]()
    except RuntimeError:
        return RuntimeError


def ours(name: str) -> Any:
    try:
        return store.read(name)
    except RuntimeError:
        return RuntimeError


def set_torchs(name: str, value: Any) -> type | None:
    try:
        if name in ENTRIES:
            torch._C._set_fp32_precision_setter(*ENTRIES[name], value)
        else:
            OLDER[name][1](value)
    except (RuntimeError, TypeError) as error:
        return type(error)
    return None


def set_ours(name: str, value: Any) -> type | None:
    try:
        store.write(name, value)
    except (RuntimeError, TypeError) as error:
        return type(error)
    return None


# torch has no way back to the state in which cudnn.conv and rnn were never touched; start where
# both have been.
START: list[tuple[str, Any]] = [
    ("float32_matmul_precision", "highest"),
    ("cudnn.allow_tf32", True),
    *((name, "none") for name in ENTRIES),
    ("cudnn.allow_tf32", True),
    ("float32_matmul_precision", "highest"),
]


@pytest.fixture
def back_at_the_start() -> Iterator[None]:
    """Leave torch as a new process has it, but for what it has no way back to."""
    yield
    for name, value in [*START, *((name, "none") for name in ENTRIES if ".matmul." in name)]:
        assert set_torchs(name, value) is None


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("back_at_the_start")
@given(STEPS)
def test_after_any_steps_every_switch_reads_as_in_torch(steps: list[tuple[str, Any]]) -> None:
    store.forget()
    for name, value in START:
        assert set_torchs(name, value) is None
        assert set_ours(name, value) is None
    for name, value in steps:
        assert set_ours(name, value) == set_torchs(name, value), (name, value)
        for entry in (*ENTRIES, *OLDER):
            assert ours(entry) == torchs(entry), (steps, entry)


#: Each list of steps in a fork of one process in which neither side has been set.
FRESH = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
sys.path.insert(0, sys.argv[3])
import test_precision_agrees as both

def compare(steps):
    for name, value in steps:
        assert both.set_ours(name, value) == both.set_torchs(name, value), (name, value)
        for each in (*both.ENTRIES, *both.OLDER):
            assert both.ours(each) == both.torchs(each), (name, each, both.ours(each), both.torchs(each))

for steps in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        compare(steps)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
print("all")
"""


def test_a_fresh_process_reads_as_in_torch() -> None:
    import json
    import os
    import subprocess
    import sys

    steps: list[list[tuple[str, Any]]] = [
        [],
        [("fp32_precision", "ieee"), ("fp32_precision", "none")],
        [("fp32_precision", "bf16")],
        [("cudnn.fp32_precision", "ieee"), ("cudnn.conv.fp32_precision", "none")],
        [("cudnn.conv.fp32_precision", "none"), ("fp32_precision", "tf32")],
        [("cudnn.allow_tf32", False), ("cudnn.allow_tf32", True)],
        [("float32_matmul_precision", "medium"), ("mkldnn.matmul.fp32_precision", "tf32")],
    ]
    told = [json.dumps(sys.path), json.dumps(steps), os.path.dirname(__file__)]
    done = subprocess.run([sys.executable, "-c", FRESH, *told], capture_output=True, text=True, check=False)
    assert done.stdout == "all\n", done.stderr[-2000:]
