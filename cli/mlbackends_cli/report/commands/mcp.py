"""Serve reports to assistants, by the Model Context Protocol on standard input and output.

The tools are info, doctor, resolve, explain and fleet_summarize. They only read, and answer with the JSON of
the command of the same name, whose schema `backends schema` prints. Needs the extra mcp:
pip install 'mcp>=2,<3'.

Examples:
  backends mcp                                  what an assistant's configuration starts
  claude mcp add backends -- backends mcp       for Claude Code
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec

from mlbackends.base.errors import BadInput
from mlbackends.base.version import __version__
from mlbackends.host.command import outcome_of
from mlbackends_cli import exits
from mlbackends_cli.lazy import documented

_SECONDS = 300.0


@documented()
def command() -> int:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
        from mcp.types import ToolAnnotations
    except ImportError:
        hint = "pip install 'mcp>=2,<3'"
        raise BadInput("`backends mcp` needs the package mcp, version 2 or newer", hint) from None
    instructions = "Reports on this machine's hardware and machine-learning backends. Nothing is changed."
    server = MCPServer("backends", version=__version__, instructions=instructions)
    # The SDK ignores an argument that a tool does not have, and would answer another question.
    ArgModelBase.model_config["extra"] = "forbid"
    for tool in (info, doctor, resolve, explain, fleet_summarize):
        server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))(tool)
    server.run("stdio")
    return exits.YES


def info(probes: list[str] | None = None, depth: str = "usable") -> dict[str, Any]:
    """Report the hardware and the backends of this machine: versions, paths, and whether each works.

    probes: names such as cpu, cuda_driver or torch, all by default. depth: found, loadable or usable.
    """
    return _answer("info", f"--depth={depth}", operands=probes or ())


def doctor() -> dict[str, Any]:
    """Report what is wrong with this machine's backends: causes, evidence, and the commands that fix it."""
    return _answer("doctor")


def resolve(packages: list[str] | None = None, python: str = "", chip: str = "") -> dict[str, Any]:
    """Report whether Python packages will load here, and why not; nothing is imported.

    packages: names or paths, all with extension modules by default. python: the interpreter of another
    environment. chip: another machine, such as h100, gfx942 or x86-64-v2.
    """
    options = [*([f"--python={python}"] if python else ()), *([f"--for={chip}"] if chip else ())]
    return _answer("resolve", *options, operands=packages or ())


def explain(
    shape: str, dtype: str = "", device: str = "", *, causal: bool = False, backward: bool = False
) -> dict[str, Any]:
    """Report which attention backends, torch's and ours, can compute a problem, and why the others cannot.

    shape: batch, heads, length and head_dim, such as 2,8,1024,64. dtype: float32, bfloat16, float16 or
    float64. device: cpu, cuda, or one that this machine lacks: h100, sm80, gfx942.
    """
    given = {"dtype": dtype, "device": device}
    options = [f"--{name}={value}" for name, value in given.items() if value]
    flags = [*(["--causal"] if causal else ()), *(["--backward"] if backward else ())]
    return _answer("sdpa", "explain", f"--shape={shape}", *options, *flags)


def fleet_summarize(paths: list[str]) -> dict[str, Any]:
    """Compare the saved reports of many nodes: which differ, in what, and which are sick.

    paths: files and folders with reports of `backends info --format json` or --format frame.
    """
    return _answer("fleet", "summarize", operands=paths)


def _answer(*words: str, operands: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON of a command in a process of its own, so that a library's crash ends only that."""
    from mcp.server.mcpserver.exceptions import ToolError

    command = [sys.executable, "-P", "-m", "mlbackends", *words, "--format=json", "--", *operands]
    with tempfile.TemporaryFile() as errors:
        outcome = outcome_of(command, _SECONDS, os.environ, errors.fileno())
        errors.seek(0)
        complaints = errors.read().decode(errors="replace").strip()
    if outcome.timed_out:
        raise ToolError(f"it did not finish within {_SECONDS:g} s")
    try:
        return msgspec.json.decode(outcome.output, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ToolError(complaints) from None
