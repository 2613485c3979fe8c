"""A pasted text before its formats are read: cleaning, lines, limits, and texts that try to break it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.audit import paste
from mlbackends.audit.messages import diagnose
from mlbackends.base.errors import BadInput
from mlbackends.host.files import named_ends

if TYPE_CHECKING:
    from pathlib import Path

NO_GPU = "RuntimeError: No CUDA GPUs are available"


def test_colours_and_carriage_returns_are_removed() -> None:
    text = paste.cleaned("\x1b[31mred\x1b[0m\r\nnext\x1b]0;title\x07\x00\rlast")
    assert text == "red\nnext\nlast"


def test_marks_of_quotations_are_removed() -> None:
    assert paste.cleaned("> > a\n>b\nc > d") == "a\nb\nc > d"


def test_the_line_of_a_value_is_counted_from_one() -> None:
    found = paste.of_text("\n\nNVIDIA-SMI 550.54  Driver Version: 550.54  CUDA Version: 12.4\n")
    assert found.line(found.stated["nvidia.driver_release"].at) == 3


def test_of_a_long_log_the_end_is_read_too() -> None:
    text = "".join(f"no problem at step {step}\n" for step in range(30_000))
    assert diagnose(paste.of_text(text + NO_GPU)).checks[0].code == "no-cuda-device"


def test_secrets_are_not_shown() -> None:
    check = diagnose(paste.of_text(f"token=abcdef0123456789 {NO_GPU}")).checks[0]
    assert "abcdef" not in check.message
    assert "redacted" in check.message


def test_a_text_in_utf16_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(f"{NO_GPU}\r\n".encode("utf-16"))
    assert diagnose(paste.read(str(tmp_path / "a.log"))).checks[0].code == "no-cuda-device"


def test_of_a_file_beyond_the_limit_both_ends_are_read(tmp_path: Path) -> None:
    lines = [b"x" * 999] * (3 * paste.LIMIT // 1000)
    lines[1], lines[-1] = b"torch==2.9.1", NO_GPU.encode()
    (tmp_path / "big.log").write_bytes(b"\n".join(lines))
    found = paste.read(str(tmp_path / "big.log"))
    outcome = diagnose(found)
    assert outcome.checks[0].place is not None
    assert outcome.checks[0].place.line == len(lines)
    assert "lines after line" in outcome.title
    assert found.text.startswith("x")
    assert found.text.split("\n")[1] == "torch==2.9.1"


def test_a_stream_without_an_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"\n" * (3 << 20))
    with pytest.raises(BadInput, match="does not end"):
        named_ends(str(file), 10, 1 << 20, "it")
    with pytest.raises(BadInput, match="cannot be read"):
        named_ends(str(tmp_path), 10, 20, "it")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 1000,
        "\ufffd\x1b[" * 500,
        "Key: " * 20_000,
        "a." * 20_000,
        "|   0  " + "A " * 20_000,
        "] " * 20_000,
        "no error\n" * 50_000,
        " " * 100_000,
    ],
)
def test_what_is_not_recognised_is_one_clear_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"no output of a known tool|is empty"):
        diagnose(paste.of_text(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"card0":' + "[" * 50_000,
        '{"card0": null, "system": []}',
        "HSA Agents\nAgent 1\n" * 500,
        "<nvidia_smi_log>" + "<gpu id=" * 500,
        "| NVIDIA-SMI 535.1 " + " " * 50_000,
        "PyTorch version: " + "9" * 5000 + "\nOS: (((((",
        "jax:    0\njaxlib: 0",
        "# Name Version Build\n" + "a 1\n" * 1000,
    ],
)
def test_damaged_output_of_a_known_tool_is_read_as_far_as_it_goes(text: str) -> None:
    assert diagnose(paste.of_text(text)).subject == "the text"
