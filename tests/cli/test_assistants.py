"""What assistants get: a skill whose commands exist, and tools that answer with our schemas."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
from running import backends

from mlbackends_cli.lazy import contexts
from mlbackends_cli.main import main


def test_the_skill_names_commands_and_options_that_exist() -> None:
    text = backends("help", "--skill").stdout
    head, name, description = text.split("\n")[:3]
    assert (head, name) == ("---", "name: backends")
    assert len(description.removeprefix("description: ")) <= 1024
    lines = re.findall(r"`(backends [^`]*)`", text)
    assert len(lines) > 15
    for line in lines:
        words = shlex.split(line)[1:]
        words = words[: words.index("--")] if "--" in words else words
        *_, found = contexts(main, words[:2])
        known = {name for parameter in found.command.params for name in parameter.opts}
        assert {word.partition("=")[0] for word in words if word[0] == "-"} <= known, line


@pytest.mark.slow
def test_tools_answer_with_the_json_of_their_commands() -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    stdio = pytest.importorskip("mcp.client.stdio")
    asyncio = pytest.importorskip("asyncio")
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("info", {"probes": ["cpu"], "depth": "found"}, "backends.report/"),
        ("doctor", {}, "backends.outcome/"),
        ("resolve", {"packages": ["msgspec"]}, "backends.resolution/"),
        ("explain", {"shape": "2,8,1024,64", "device": "h100", "causal": True}, "backends.sdpa-explain/"),
        ("explain", {"shape": "--output=/tmp/no"}, "is not a whole number"),
        ("fleet_summarize", {"paths": ["/there/is/none"]}, "cannot be read"),
        ("resolve", {"package": "msgspec"}, "package"),  # not an answer about all packages
    ]

    async def talk() -> None:
        parameters = mcp.StdioServerParameters(command=sys.executable, args=["-m", "mlbackends", "mcp"])
        async with stdio.stdio_client(parameters) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            assert {tool.name for tool in tools} == {name for name, _, _ in calls}
            assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
            for name, arguments, seen in calls:
                answer = await session.call_tool(name, arguments)
                if seen.endswith("/"):
                    assert answer.structured_content["schema"].startswith(seen)
                    assert json.loads(answer.content[0].text) == answer.structured_content
                else:
                    assert answer.is_error
                    assert seen in answer.content[0].text

    asyncio.run(talk())


def test_without_the_package_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['mcp'] = None; from mlbackends_cli import program; program()"

    done = subprocess.run([sys.executable, "-c", program, "mcp"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'mcp>=2,<3'" in done.stderr
