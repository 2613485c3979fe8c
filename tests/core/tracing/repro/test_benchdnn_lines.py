"""Our benchdnn lines beside those of oneDNN's own scripts/verbose_converter (March 2025), option by option.

`converter_lines.txt` holds lines of the logs in tests/traces, and more that were made from the grammar, each
with what that script printed for it: lines that differ in nothing but sizes are left out, and so are those
that it cannot read (1.x to 2.4, gemm_api). What is left of a difference after `plain` stands in DIFFERENT.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mlbackends.base.registry import load
from mlbackends.model.trace import Primitive
from mlbackends.tracing.repro.benchdnn import command

TEXT = Path(__file__).with_name("converter_lines.txt").read_text("utf-8").splitlines()
PAIRS = list(zip(TEXT[::2], (line.strip() for line in TEXT[1::2]), strict=True))

SAME_WORDS = {"softmax_accurate": "softmax", "softmax_log": "logsoftmax", "winograd": "wino"}
#: What an option says that need not be said (tests/benchdnn/doc, the driver of each primitive).
DEFAULTS = {
    "--allow-enum-tags-only": "1",
    "--bia-dt": "undef",
    "--ss_dt": "f32",
    "--trivial-strides": "true",
}

#: What theirs says and what ours says instead, with the reason.
DIFFERENT = [
    # --wtag takes no encodings: knobs_encoding.md.
    ({"--wtag": "csr"}, {"--encoding": ":csr:"}),
    # --engine takes one engine: driver_reorder.md.
    ({"--engine": "cpu2gpu"}, {"--engine": "gpu", "--cross-engine": "cpu2gpu"}),
    # A softmax backwards has no source, and the gradient for it stands in its place.
    ({}, {"--sdt": "f32", "--stag": "ab"}),
]


def options(text: str) -> tuple[str, dict[str, str], str]:
    """Return the driver, its options, and the sizes."""
    driver, *told, sizes = [word for word in shlex.split(text) if word != "benchdnn"]
    return driver, {name: value for name, _, value in (word.partition("=") for word in told)}, sizes


def plain(text: str) -> dict[str, str]:
    """Return the options as they would be if all took one of several equal words for each thing."""
    driver, told, sizes = options(text)
    told.pop("--reset", None)  # it is for files of several problems
    if told.get("--dir") in {"FWD_B", "BWD_WB"}:  # a bias of f32, in the words of all versions
        told["--bia-dt"] = "f32"
        told["--dir"] = {"FWD_B": "FWD_D", "BWD_WB": "BWD_W"}[told["--dir"]]
    for name, value in list(told.items()):
        if not value.strip(":") or DEFAULTS.get(name) == value:
            del told[name]
        elif name == "--alg":
            value = SAME_WORDS.get(value.lower(), value.lower())
            told[name] = re.sub(r"^(eltwise|pooling)_", "", value)
        elif name == "--dt" and len(set(value.split(":"))) == 1:
            told[name] = value.partition(":")[0]  # one type stands for all
        elif name == "--flags":
            told[name] = value.replace("diff_weights_overwrite", "O")
        elif name in {"--attr-scales", "--attr-zero-points"}:
            told[name] = _plain_scales(value, driver, sizes)
        elif name == "--attr-post-ops":
            told[name] = "+".join(map(_plain_post_operation, value.split("+")))
    return {"driver": driver, **told, "sizes": sizes}


def _plain_scales(text: str, driver: str, sizes: str) -> str:
    # f32 and s32 are the types where none is named.
    text = re.sub(r":[fs]32(?=\+|$)", "", text.replace("src0:", "src:"))
    batches = sizes.partition(":")[0].count("x") - 1 if driver == "--matmul" else 0
    text = text.replace("wei:per_oc+", f"wei:per_dim_{int(driver == '--matmul')}+")
    return text if batches else text.replace("per_ocic", "per_dim_01")


def _plain_post_operation(text: str) -> str:
    text = re.sub(r"^(eltwise|binary)_", "", re.sub(r"\.0(?=:|$)", "", text))
    # They add these where the line names none; one value has one layout, and f32 is the default.
    return re.sub(r"(:0):abx$|^(dw:.*):f32$", r"\1\2", text)


@pytest.mark.parametrize(("line", "theirs"), PAIRS)
def test_our_options_are_those_of_onednns_own_script(line: str, theirs: str) -> None:
    record = load("mlbackends.tracing.formats", "onednn").parse(line)
    assert isinstance(record, Primitive)
    our_options, their_options = plain(command(record.signature).text), plain(theirs)
    ours_alone = dict(our_options.items() - their_options.items())
    theirs_alone = dict(their_options.items() - our_options.items())
    assert (theirs_alone, ours_alone) in [({}, {}), *DIFFERENT]


@pytest.mark.parametrize(("theirs", "ours"), DIFFERENT)
def test_each_difference_is_there(theirs: dict[str, str], ours: dict[str, str]) -> None:
    assert any(theirs.items() <= plain(text).items() for _, text in PAIRS)
    assert ours
