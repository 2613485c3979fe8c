"""What each format of a pasted text states, by composed samples of several versions."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlbackends.audit import paste
from mlbackends.base import registry

SAMPLES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("samples.toml").read_text(encoding="utf-8")
)["sample"]
FORMATS = registry.names(paste.REGISTRY)


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{one['format']}-{n}" for n, one in enumerate(SAMPLES)])
def test_a_sample_states_its_values(sample: dict[str, Any]) -> None:
    stated = paste.of_text(sample["text"]).stated
    found = {name: stated[name].value if name in stated else "-" for name in sample["states"]}
    assert found == sample["states"]


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{one['format']}-{n}" for n, one in enumerate(SAMPLES)])
def test_a_sample_is_recognised_by_its_content_alone(sample: dict[str, Any]) -> None:
    title = (registry.load(paste.REGISTRY, sample["format"]).__doc__ or "").partition("\n")[0].rstrip(".")
    assert title in paste.of_text(sample["text"]).formats


def test_each_format_has_two_samples() -> None:
    count = Counter(sample["format"] for sample in SAMPLES)
    assert {name: count[name] for name in FORMATS if count[name] < 2} == {}


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{one['format']}-{n}" for n, one in enumerate(SAMPLES)])
def test_a_text_that_is_cut_off_anywhere_is_read(sample: dict[str, Any]) -> None:
    text = sample["text"]
    for end in range(0, len(text), 37):
        assert paste.of_text(text[:end]).report.probes is not None


@pytest.mark.parametrize(
    "text", ["Architecture is a word", "numpy 1.0", "a==1", "card0", "Agent 1", "GPU 0: x"]
)
def test_ordinary_text_is_no_format(text: str) -> None:
    assert paste.of_text(text).formats == ()


def test_several_formats_in_one_text_are_all_read() -> None:
    texts = {sample["format"]: sample["text"] for sample in SAMPLES}
    joined = "\n```\n".join(["# Bug", texts["lscpu"], texts["pip_list"], texts["nvcc"]])
    found = paste.of_text(joined)
    assert len(found.formats) == 3
    assert {"cpu", "packages", "cuda_toolkit"} <= set(found.report.probes)


def test_the_first_value_counts() -> None:
    text = "[pip3] numpy==1.26.4\n[pip3] numpy==2.0.0\n"
    assert paste.of_text(text).stated["packages.distributions.numpy"].value == "1.26.4"
