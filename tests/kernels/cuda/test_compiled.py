"""Our CUDA C++ is compiled by the real NVRTC, where it is installed, for every chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends_kernels.cuda import compiling, copies, softmax
from mlbackends_kernels.cuda.errors import CudaUnavailable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("source", [copies._SOURCE, softmax._SOURCE], ids=lambda file: file.name)
@pytest.mark.parametrize("chip", [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)])
def test_nvrtc_takes_it_without_a_word(source: Path, chip: tuple[int, int]) -> None:
    try:
        cubin, log = compiling.compiled(source, compiling.options_for(chip))
    except CudaUnavailable as error:
        pytest.skip(f"no NVRTC: {error}")
    assert log == "" and len(cubin) > 1000
