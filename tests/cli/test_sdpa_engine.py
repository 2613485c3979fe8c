"""`backends sdpa explain --engine`: what an inference engine chooses for a model, as a user runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from running import backends

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = ("--engine", "transformers", "--model", "config.json", "--device", "t4")
SHAPE = ("--shape", "1,2,8,16")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "dtype": "bfloat16",
}


def test_explain_prints_what_an_engine_would_choose(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(CONFIG))
    words = ("sdpa", "explain", "--engine", "vllm", "--model", str(tmp_path), "--device", "t4")

    page = backends(*words)
    saved = msgspec.json.decode(backends(*words, "--format", "json").stdout)
    text = backends(*words, "--block-size", "8", "--format", "markdown")

    assert page.returncode == 0
    assert "layers with full attention: it would choose TRITON_ATTN" in page.stdout
    reason = "compute capability 7.5; needs 8.0 or newer [wrong-capability]"
    assert reason in " ".join(page.stdout.split())
    assert (saved["schema"], saved["layers"][0]["chosen"]) == ("backends.sdpa-engine/1", "TRITON_ATTN")
    assert text.returncode == 1
    assert "none: it would raise an error" in text.stdout


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("torch", "by scaled_dot_product_attention: it would choose FLASH_ATTENTION"),
        ("transformer-engine", "its choice is not known: FusedAttention: from 2.20 on, cuDNN itself"),
    ],
)
def test_a_long_choice_stays_within_the_terminal(tmp_path: Path, engine: str, words: str) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(CONFIG))

    page = backends("sdpa", "explain", "--engine", engine, "--model", str(tmp_path), "--device", "l4").stdout

    assert words in " ".join(page.split())
    assert max(map(len, page.splitlines()[1:])) <= 80
    assert "9.0 to 9.0" not in page


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--engine", "vllm"), "--engine needs --model FILE"),
        (("--engine", "vllm", "--model", "config.json"), "--engine needs one --device"),
        (
            ("--engine", "vllm", "--model", "config.json", "--device", "h100,t4"),
            "--engine needs one --device",
        ),
        (("--engine", "vllm", *SHAPE), "--shape is for a problem, --engine for a model"),
        (("--engine", "vllm", "--causal"), "--causal is for a problem, --engine for a model"),
        ((*ENGINE, "--torch", "2.13,2.14"), "--engine needs one release of torch"),
        ((*ENGINE, "--mask", "causal"), "--mask causal is for a problem"),
        ((*ENGINE, "--kv-len", "1"), "a prompt has 2 to"),
        ((*ENGINE, "--kv-len", "64,128"), "one value of each option"),
        ((*ENGINE, "--driver", "550"), "--driver is for a problem"),
        ((*SHAPE, "--with", "flash-attn"), "--attention and --with need an engine"),
        ((*SHAPE, "--kv-dtype", "fp8"), "--attention and --with need an engine"),
        (("--engine", "vllm", "--model", "/nowhere.json", "--device", "t4"), "/nowhere.json"),
    ],
)
def test_an_engine_and_a_problem_are_not_mixed(words: tuple[str, ...], text: str) -> None:
    ran = backends("sdpa", "explain", *words)

    assert ran.returncode == 2
    assert text in ran.stderr


def test_the_memory_and_time_of_the_plain_formula_are_stated(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(CONFIG))
    words = ("sdpa", "explain", "--engine", "transformers", "--model", str(tmp_path), "--attention", "eager")

    page = backends(*words, "--device", "h100", "--kv-len", "8192")
    slow = backends(*words[:-2], "--device", "t4", "--torch", "2.13", "--with", "flash_attn==2.8.3")
    text = backends(*words, "--device", "h100", "--format", "markdown")
    saved = msgspec.json.decode(backends(*words, "--device", "h100", "--format", "json").stdout)

    assert "it would choose eager" in page.stdout
    assert "the plain formula holds at least 4 GiB of scores; at best" in " ".join(page.stdout.split())
    assert "torch 2.13 computes it with MATH" in " ".join(slow.stdout.split())
    assert "it would choose **eager**" in text.stdout
    assert saved["layers"][0]["call"]["score_bytes"] == 1 << 30
