"""cuDNN itself, asked for chips that were not found, beside the rules by which torch gives it problems."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("cudnn")

PROGRAM = """
import json, random
from msgspec.structs import replace
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa import named_devices, rules
from mlbackends.sdpa.rules.environment import NEWEST
from mlbackends.sdpa.switches import SDPBackend
from mlbackends_kernels.cuda import attention_graph
from mlbackends_kernels.cudnn import Cudnn

cudnn, draw, ours = attention_graph._loaded(), random.Random(7), Cudnn()
newest = replace(NEWEST, cudnn_version=cudnn.backend_version())
FAULTS = {"length-unsupported", "gradient", "known-wrong"}  # cuDNN accepts what it computes wrongly
DEVICES = [named_devices.device(name).device for name in (
    "sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm120")]

def problem():
    choose = draw.choice
    batch, heads, rows = choose([1, 2, 4]), choose([1, 2, 6, 8]), choose([1, 2, 7, 64, 100, 4096])
    keys, dtype = choose([rows, 1, 3, 64, 333, 1024]), choose(["float16", "bfloat16"])
    width = choose([8, 12, 16, 40, 64, 96, 128, 136, 192, 256, 264])
    groups = choose([1, 1, heads])
    more = choose([{}, {}, {"is_causal": True}, {"is_causal": True, "lower_right": True},
        {"mask": TensorSpec((choose([1, batch]), choose([1, heads]), choose([1, rows]), keys), dtype)}])
    grad = draw.random() < 0.3
    def spec(heads, rows, width):
        return TensorSpec((batch, heads, rows, width), dtype, requires_grad=grad)
    return AttentionProblem(query=spec(heads, rows, width), key=spec(heads // groups, keys, width),
        value=spec(heads // groups, keys, choose([width, width, 64, 128])), enable_gqa=groups > 1,
        device=choose(DEVICES), **more)

def refusal(one):
    try:
        for backward in (False, True)[:1 + one.wants_gradient]:
            attention_graph.attention_graph(one, backward=backward)
    except attention_graph.Refused as refused:
        return str(refused)
    return ""

counts, wrong = {}, []
for one in [problem() for _ in range(2000)]:
    reasons = ours.unsupported_reasons(one)
    if any(each.code in FAULTS for each in reasons):
        continue
    torch, said = not rules.why_not(SDPBackend.CUDNN_ATTENTION, one, newest), refusal(one)
    key = f"torch {torch}, ours {not reasons}, cuDNN {not said}"
    counts[key] = counts.get(key, 0) + 1
    too_long = one.lower_right and one.query_length > one.key_length  # torch makes a mask of it
    if said and torch and not too_long or reasons and not said:
        wrong.append([repr(one), said, [each.message for each in reasons]])
print(json.dumps([counts, wrong]))
"""


def test_cudnn_takes_what_torch_gives_it_and_nothing_that_we_keep_from_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )
    if "symbol cudnnGetVersion" in done.stderr:
        pytest.skip("no cuDNN is installed beside its frontend")
    assert done.returncode == 0, done.stderr[-2000:]
    counts, wrong = json.loads(done.stdout.splitlines()[-1])
    assert not wrong, wrong[:5]
    for seen in ("torch True, ours True, cuDNN True", "torch False, ours True, cuDNN False"):
        assert counts[seen] > 100, counts
