"""OpenVINO and ONNX Runtime as peers, by those that are installed: they compute what their rules accept."""

from __future__ import annotations

import importlib.util
import json
import runpy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.peer import peers
from mlbackends_kernels.checking import program
from mlbackends_kernels.checking.values import responder

if TYPE_CHECKING:
    from pathlib import Path

PEERS = {peer.name: peer for peer in peers()}
NAMES = ("openvino", "onnxruntime")
WORDS = (
    "--causal", "--causal --kv-len 5", "--mask bool", "--mask float:2,1,1,9",
    "--layout bshd --scale 0.3 --mask float", "--scale 2.0", "--value-dim 24", "--dtype float16",
)  # fmt: skip
CASES = (
    *((name, words) for name in NAMES for words in WORDS),
    ("onnxruntime", "--kv-heads 2 --gqa"), ("onnxruntime", "--mask float:2,4,9,1"),
    ("openvino", "--dtype bfloat16"),
)  # fmt: skip


def computed(name: str, words: str, folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the details and the errors of a peer's result."""
    made = SimpleNamespace(**runpy.run_path(program("graphs_program")))
    answer, values = made.serving.responder(partial(made.Graph, name)), responder()
    (wording,) = parse(f"--shape 2,4,9,16 {words}")
    problem = wording.problem(Device("cpu", 0))
    assert not PEERS[name].unsupported_reasons(problem)
    sent = json.loads(msgspec.json.encode(problem))
    files = values({"do": "prepare", "problem": sent, "folder": str(folder), "seed": 0})
    details: dict[str, str] = answer({"do": "prepare", "problem": sent, **files})["details"]
    assert answer({"do": "compute", "into": str(folder / "result.bin")}).keys() <= {
        "extra_bytes",
        "measured_by",
    }
    errors = values({"do": "judge", "path": str(folder / "result.bin"), "tolerance": 6.0})
    return details, errors[""]


@pytest.mark.parametrize(("name", "words"), CASES)
def test_what_its_rules_accept_is_right(name: str, words: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    if name == "onnxruntime":
        pytest.importorskip("onnx")

    _, errors = computed(name, words, tmp_path)

    assert not errors["misplaced"]
    assert errors["largest_absolute"] <= errors["largest_allowed"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_openvino_computes_in_float32(dtype: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("openvino is not installed")

    details, errors = computed("openvino", f"--dtype {dtype}", tmp_path)

    assert details["precision"] == "f32"
    assert errors["largest_absolute"] < (1e-5 if dtype == "float32" else 4e-3)


def test_openvino_s_nan_where_a_row_sees_no_key_counts_as_wrong(tmp_path: Path) -> None:
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("openvino is not installed")

    _, errors = computed("openvino", "--mask float:2,4,9,1", tmp_path)

    assert errors["misplaced"] and errors["misplaced"] % 16 == 0  # whole rows


def test_float64_of_onnxruntime_has_the_error_of_a_float32_scale(tmp_path: Path) -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    pytest.importorskip("onnx")

    _, exact = computed("onnxruntime", "--dtype float64", tmp_path)  # the root of its scale is 1/2
    _, errors = computed("onnxruntime", "--dtype float64 --scale 0.3", tmp_path)

    assert exact["largest_absolute"] <= exact["largest_allowed"] < errors["largest_absolute"] < 1e-6
