"""Inference engines' choices of attention beside the engines' own Python, which needs no GPU for it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.sdpa import engines

CONFIGURATIONS = int(os.environ.get("MLBACKENDS_ENGINE_CONFIGURATIONS", "10000"))
#: vLLM's messages, and our codes for them.
VLLM_CODES = {
    "head_size not supported": "head-size",
    "dtype not supported": "dtype",
    "kv_cache_dtype not supported": "kv-dtype",
    "block_size not supported": "block-size",
    "MLA not supported": "mla",
    "non-MLA not supported": "mla",
    "attention sinks not supported": "sinks",
    "sparse not supported": "sparse",
    "non-sparse not supported": "sparse",
    "compute capability not supported": "capability",
    "sliding window not supported": "window",
}


def configuration(draw: random.Random, kv_dtypes: list[str]) -> dict[str, Any]:
    mla = draw.random() < 0.5
    heads = draw.choice([1, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
    rank, rope = draw.choice([256, 448, 512, 512, 512]), draw.choice([0, 32, 64, 64, 64])
    sizes = [
        16,
        24,
        32,
        40,
        64,
        72,
        80,
        96,
        100,
        112,
        128,
        160,
        192,
        248,
        256,
        257,
        264,
        320,
        384,
        512,
        520,
        576,
    ]
    sparse = mla and draw.random() < 0.5
    return {
        "architecture": "",
        "capability": draw.choice([70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121]),
        "head_size": rank + rope if mla else draw.choice(sizes),
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "float32"]),
        "kv_dtype": draw.choice(["auto", "auto", "fp8", *kv_dtypes]),
        "block_size": draw.choice([None, None, 1, 8, 16, 32, 48, 64, 80, 96, 128, 256, 512]),
        "mla": mla,
        "sparse": sparse,
        "sinks": draw.random() < 0.25,
        "window": draw.random() < 0.25,
        "softcap": draw.random() < 0.2,
        "heads": heads,
        "kv_heads": draw.choice([n for n in (1, 2, 4, 8, 16, 32) if heads % n == 0]),
        "kv_lora_rank": rank if mla else None,
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": draw.choice([1, 64, 96, 128, 128, 192, 256]),
        "index_topk": draw.choice([512, 1024, 1100, 2048, 2048]) if sparse else None,
    }


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed")
def test_vllm_chooses_what_the_rules_say() -> None:
    release = importlib.metadata.version("vllm")
    rules = table("sdpa/engines/vllm.toml")
    if ".".join(map(str, dotted_numbers(release)[:2])) not in rules["releases"]:
        pytest.skip(f"the rules of vLLM {release} are not recorded")
    draw = random.Random(28)
    asked = [configuration(draw, rules["kv_dtypes"]) for _ in range(CONFIGURATIONS)]
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("vllm_choices.py"))],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    theirs = [json.loads(line) for line in child.stdout.splitlines()]
    # What follows for vLLM's configuration is no part of its selection.
    facts_of_config = {"dtype", "kv_dtype"}
    selecting = rules | {"fact": [row for row in rules["fact"] if row["name"] not in facts_of_config]}
    wrong = []
    for facts, answer in zip(asked, theirs, strict=True):
        verdicts = engines.verdicts(
            rules, dotted_numbers(release), engines.derived(selecting, dotted_numbers(release), facts)
        )
        chosen = next((verdict.backend for verdict in verdicts if not verdict.reasons), "")
        codes = {v.backend: sorted({r.code for r in v.reasons}) for v in verdicts if v.reasons}
        expected = {
            name: sorted({VLLM_CODES.get(text, "combination") for text in texts})
            for name, texts in answer["reasons"].items()
        }
        ours = (chosen, [verdict.backend for verdict in verdicts], codes)
        if ours != (answer["chosen"], answer["order"], expected):
            differing = {name for name in {*codes, *expected} if codes.get(name) != expected.get(name)}
            wrong.append(
                (facts, chosen, answer["chosen"], [(n, codes.get(n), expected.get(n)) for n in differing])
            )

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"
    assert len({answer["chosen"] for answer in theirs}) > 8
