"""Compiling our CUDA C++: the cache of machine code, architectures and errors, over a stub NVRTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from pathlib import Path
from mlbackends_kernels.cuda.kernels import compiled
def code(*arguments, **options): return len(bytes(compiled(Path({source!r}), *arguments, **options).code))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "whole.cu").write_text('#include "part.cu"\n')
    (tmp_path / "part.cu").write_text("// a part\n")
    return PROGRAM.format(source=str(tmp_path / "whole.cu"))


def cached(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "cache" / "mlbackends" / "kernels"
    return [path for path in folder.rglob("*") if path.is_file() and "entries" in path.parts]


def test_what_was_compiled_once_is_not_compiled_again(
    on_fake_cuda: Any, program: str, tmp_path: Path
) -> None:
    call = program + "report(code((9, 0), [('SIZE', '4')]))\n"
    assert on_fake_cuda(call).values == [128]
    assert len(cached(tmp_path)) == 1
    assert on_fake_cuda(call, FAKE_NVRTC="6").values == [128]


@pytest.mark.parametrize("change", ["(8, 0), [('SIZE', '4')]", "(9, 0), [('SIZE', '8')]"])
def test_another_device_or_macro_is_compiled_anew(
    on_fake_cuda: Any, program: str, tmp_path: Path, change: str
) -> None:
    on_fake_cuda(program + f"code((9, 0), [('SIZE', '4')]), code({change})\n")
    assert len(cached(tmp_path)) == 2


def test_a_change_in_an_included_file_is_compiled_anew(
    on_fake_cuda: Any, program: str, tmp_path: Path
) -> None:
    on_fake_cuda(program + "code((9, 0))\n")
    (tmp_path / "part.cu").write_text("// changed\n")
    on_fake_cuda(program + "code((9, 0))\n")
    assert len(cached(tmp_path)) == 2


def test_without_a_place_to_write_each_process_compiles(
    on_fake_cuda: Any, program: str, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert on_fake_cuda(program + "report(code((9, 0)))\n").values == [128]


def test_code_of_the_same_generation_serves_an_unknown_device(on_fake_cuda: Any, program: str) -> None:
    output = on_fake_cuda(program + "report(code((12, 1)))\nreport(error_of(lambda: code((11, 0))))\n")
    size, (kind, message) = output.values
    assert size == 128 and kind == "CudaError"
    assert "no support for sm110; it supports sm75, sm80" in message


def test_a_source_that_cannot_be_compiled_is_an_error_with_its_name(on_fake_cuda: Any, program: str) -> None:
    output = on_fake_cuda(program + "report(error_of(lambda: code((9, 0))))\n", FAKE_NVRTC="6")
    kind, message = output.values[0]
    assert kind == "CudaError"
    assert message.startswith("compiling whole.cu returned")
    assert "NVRTC_ERROR_COMPILATION" in message
