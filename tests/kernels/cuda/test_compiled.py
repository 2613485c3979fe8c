"""Our CUDA C++ is compiled by the real NVRTC, where it is installed, for every chip."""

from __future__ import annotations

from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[3] / "kernels" / "mlbackends_kernels" / "cuda"


@pytest.mark.parametrize("file", ["copies.cu", "softmax.cu"])
@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_nvrtc_takes_it_without_a_word(file: str, chip: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # noqa: BLE001  a library that is not there raises one of several types
        pytest.skip(f"no NVRTC: {error}")
    source = (KERNELS / file).read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(source, file.encode(), 0, [], [])
    options = [b"--std=c++17", f"--gpu-architecture={chip}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert (int(status), bytes(log).rstrip(b"\0").decode()) == (0, "")
    assert nvrtc.nvrtcGetCUBINSize(program)[1] > 1000
