"""`backends doctor --from`, as a user runs it on what somebody has pasted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from running import backends

if TYPE_CHECKING:
    from pathlib import Path

ISSUE = """\
### Environment
```text
PyTorch version: 2.5.1+cu124
CUDA used to build PyTorch: 12.4
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
[pip3] torch==2.5.1
```
> \x1b[31mTraceback\x1b[0m (most recent call last):\r
>   File "C:\\a\\b.py", line 1, in <module>\r
> RuntimeError: CUDA error: no kernel image is available for execution on the device\r
"""


@pytest.fixture
def issue(tmp_path: Path) -> str:
    file = tmp_path / "issue.md"
    file.write_bytes(ISSUE.encode())
    return str(file)


def test_the_cause_comes_first_with_its_line_and_fix(issue: str) -> None:
    done = backends("doctor", "--from", issue)
    assert done.returncode == 1
    first, second, *_ = done.stdout.splitlines()
    assert first.endswith(f"no-kernel-image ({issue}:10)")
    assert second.strip().startswith("line 10: RuntimeError: CUDA error")
    assert "do    Install torch 2.7 or newer" in done.stdout
    assert "Not checked" not in done.stdout


def test_standard_input_is_read() -> None:
    done = backends("doctor", "--from", "-", data="ImportError: libGL.so.1: cannot open shared object file")
    assert done.returncode == 1
    assert "libgl-missing (standard input:1)" in done.stdout


def test_with_all_what_is_not_stated_is_listed(issue: str) -> None:
    assert "Not checked" in backends("doctor", "--from", issue, "--all").stdout


def test_other_formats_have_the_same(issue: str) -> None:
    found = json.loads(backends("doctor", "--from", issue, "--format", "json").stdout)["checks"]
    assert [check["code"] for check in found] == ["no-kernel-image"]
    assert found[0]["place"] == {"file": issue, "line": 10}
    assert found[0]["documentation"].startswith("https://github.com/")


def test_nothing_recognised_is_one_line_and_2() -> None:
    done = backends("doctor", "--from", "-", data="hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no output of a known tool and no known error message" in done.stderr


def test_only_one_hazard_can_be_asked_for(issue: str) -> None:
    done = backends("doctor", "--from", issue, "--only", "torch-without-code-for-gpu", "--format", "json")
    assert [check["code"] for check in json.loads(done.stdout)["checks"]] == ["torch-without-code-for-gpu"]


@pytest.mark.parametrize("other", [["--pid", "1"], ["--python", "python3"], ["report.json"]])
def test_from_stands_alone(issue: str, other: list[str]) -> None:
    done = backends("doctor", "--from", issue, *other)
    assert done.returncode == 2
    assert "--from reads a text" in done.stderr


def test_a_text_where_a_report_is_expected_names_the_option(issue: str) -> None:
    assert "doctor --from FILE" in backends("doctor", issue).stderr


def test_a_code_of_a_message_is_explained() -> None:
    done = backends("explain", "cudart-missing")
    assert done.returncode == 0
    assert "built for CUDA 13" in done.stdout
    assert "vllm-project/vllm#44335" in done.stdout
