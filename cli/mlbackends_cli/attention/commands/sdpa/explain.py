"""Show which backends support a problem, on this machine or another; nothing is computed.

The page has all reasons of all backends, the backend that mlbackends would choose, and torch's choice.
DEVICE need not be present: its rules are data. The switches of torch.backends apply as they are set
in this environment. If one of our CUDA backends supports a problem, that does not mean that it has run
there: none has run on a GPU yet. Exit 0 if one of ours supports every problem, else 1.

Examples:
  backends sdpa explain --shape 2,8,1024,64
  backends sdpa explain --shape 2,8,1024,64 --dtype float16 --causal --device sm80,sm90,gfx942
  backends sdpa explain --shape 2,8,1024,200 --dtype float16 --backward --device sm86
  backends sdpa explain --shape 2,8,1,64 --kv-len 128 --device b200 --torch 2.13 --cudnn 9.20
  backends sdpa explain --shape 2,8,1024,64 --matrix --torch 2.5..2.15
  backends sdpa explain --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --format json
  backends sdpa explain --engine vllm --model ./config.json --device h100 --kv-dtype fp8
  backends sdpa explain --engine sglang --model ./config.json --device b200 --block-size 1
  backends sdpa explain --engine transformer-engine --model ./config.json --device a100 --with flash-attn
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from mlbackends.base.errors import BadInput, some
from mlbackends.sdpa import engines, explaining, problem_text
from mlbackends.sdpa.named_devices import GPUS
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import engine_page, explain_page
from mlbackends_cli.attention.options import (
    FORMAT,
    backend_option,
    problem_options,
    versions_of,
    wordings_of,
)
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import VERSIONS, completing, option, typed
from mlbackends_cli.output import log


@documented()
@problem_options
@backend_option("Explain only this backend of ours (repeatable).")
@backend_option("Exit 1 unless this backend supports every problem.", "--require required NAME")
@VERSIONS
@option(
    "--engine NAME[==VERSION]",
    f"Explain what an inference engine chooses for a model instead of a problem: {', '.join(engines.NAMES)}.",
    shell_complete=completing(partial(iter, engines.NAMES)),
)
@option("--model FILE", "The model's config.json, or its folder; for --engine.")
@option("--kv-dtype TYPE", "The type of the KV cache, as the engine names it; for --engine.", usual="auto")
@option("--block-size N", "Tokens in a block of the KV cache; for --engine.", kind=click.IntRange(1, 65536))
@option(
    "--attention asked NAME", "The attention that the engine is asked for by name, such as flex_attention."
)
@option(
    "--with PACKAGE[==VERSION]",
    "Assume that this package is installed (repeatable); for --engine.",
    many=True,
)
@option("--matrix", "Print a table of devices, and of versions of torch, against backends.")
@option("--all details", "Print all reasons, even for many problems.")
@FORMAT
def command(
    names: tuple[str, ...],
    required: tuple[str, ...],
    details: bool,
    matrix: bool,
    engine: str | None,
    model: str | None,
    kv_dtype: str,
    block_size: int | None,
    asked: str | None,
    **words: Any,
) -> int:
    packages = words.pop("with")
    torch, versions = versions_of(words)
    if engine:
        if len(torch) > 1:
            raise BadInput("--engine needs one release of torch", f"such as --torch {torch[-1]}")
        versions |= {"torch": torch[0]} if torch else {}
        given = {"kv_dtype": kv_dtype, "block_size": block_size, "asked": asked or "not asked"}
        return _engine(engine, model, versions, packages, given)
    if model or block_size or packages or asked or kv_dtype != "auto":
        raise BadInput(
            "--model, --kv-dtype, --block-size, --attention and --with need an engine", "add --engine vllm"
        )
    if matrix and not words["device"]:
        words["device"] = (",".join(GPUS),)
    wordings = wordings_of(words)
    explaining.chosen_backends(required)
    among = (*names, *required) if names else ()
    explanation = explaining.explain(wordings, among, torch, versions)
    own = {"table": explain_page.printed, "markdown": explain_page.markdown}
    if matrix:
        own = {"table": explain_page.matrix_text, "markdown": explain_page.matrix_markdown}
    formats.show(explanation, own, details=details, **words)
    is_met = all(problem.answered for problem in explanation.problems)
    for name in dict.fromkeys(required):
        unmet = {
            problem.text: "may" if verdict.undecided else "does"
            for problem in explanation.problems
            for verdict in problem.verdicts
            if verdict.backend == name and not verdict.usable
        }
        if unmet:
            is_met, word = False, "does" if "does" in unmet.values() else "may"
            log(f"{name} is required, but {word} not support {some(tuple(unmet))}")
    return exits.YES if is_met else exits.NO


_LONGEST_PROMPT = 1 << 24
#: What --engine goes together with.
_WITH_ENGINE = {"engine", "model", "device", "kv_dtype", "block_size", "asked", "with", "torch", "cudnn"}
_WITH_ENGINE |= {"cuda", "dtype", "kv_len", "mask", "backward", "form", "output", "color"}


def _engine(
    engine: str, model: str | None, versions: dict[str, str], packages: Sequence[str], given: dict[str, Any]
) -> int:
    """Print what an engine chooses for a model."""
    for name, typed_option in typed().items():
        if name not in _WITH_ENGINE:
            raise BadInput(f"{typed_option} is for a problem, --engine for a model", "leave one of them out")
    words = click.get_current_context().params
    typed_words = {
        name: list(words[name.replace("-", "_")]) for name in ("device", "dtype", "kv-len", "mask")
    }
    wording, *more = problem_text.wordings({"shape": ["1,1"], **typed_words})
    if not model or not words["device"] or more:
        needed = "--model FILE" if not model else "one --device, and one value of each option"
        raise BadInput(f"--engine needs {needed}", "such as --engine vllm --model config.json --device h100")
    if wording.mask not in ("none", "bool", "float"):
        raise BadInput(f"--mask {wording.mask} is for a problem", "write --mask bool or --mask float")
    if wording.kv_len is not None and not 2 <= wording.kv_len <= _LONGEST_PROMPT:
        raise BadInput(f"--kv-len {wording.kv_len}: a prompt has 2 to {_LONGEST_PROMPT} tokens")
    given |= {"mask": wording.mask, "backward": words["backward"]}
    given |= {"dtype": wording.dtype} if words["dtype"] else {}
    given |= {"tokens": wording.kv_len} if wording.kv_len is not None else {}
    installed = {name.strip(): value for name, _, value in (text.partition("==") for text in packages)}
    found = engines.explain(engine, model, words["device"][0], versions, installed, **given)
    own = {"table": engine_page.printed, "markdown": engine_page.markdown}
    formats.show(found, own, form=words["form"], output=words["output"], color=words["color"])
    return exits.YES if found.answered else exits.NO
