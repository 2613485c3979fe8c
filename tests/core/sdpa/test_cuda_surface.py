"""What mlbackends.cuda has about attention, asked about a GPU that a fake driver tells of."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import mlbackends
from mlbackends import sdpa
from mlbackends.sdpa import cuda_surface
from mlbackends.switches import store

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary

Params: Any = sdpa.SDPAParams
X = np.zeros((1, 2, 16, 64), "float16")
NAMES = ("flash", "mem_efficient", "math", "cudnn")

#: A program with tensors that say that they are on a GPU.
PROGRAM = """
import warnings
from mlbackends import cuda

class OnGpu:
    __cuda_array_interface__ = {}
    def __init__(self, *shape, dtype="float16"):
        self.shape, self.dtype = shape, dtype

def ask(*tensors, mask=None, causal=False):
    params = cuda.SDPAParams(*tensors, mask, 0.0, causal, False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        flash = cuda.can_use_flash_attention(params, debug=True)
    print(flash, cuda.can_use_efficient_attention(params), *[str(each.message) for each in told], sep="; ")

easy = OnGpu(1, 2, 16, 64)
ask(easy, easy, easy)
ask(easy, easy, easy, mask=OnGpu(16, 16))
ask(easy, OnGpu(1, 2, 32, 64), OnGpu(1, 2, 32, 64), causal=True)
ask(easy, OnGpu(1, 2, 32, 60), OnGpu(1, 2, 32, 64))
cuda.enable_flash_sdp(False)
ask(easy, easy, easy, mask=OnGpu(16, 16))
"""


def answers(fake_library: FakeLibrary, capability: str) -> list[str]:
    library = fake_library("computing_driver", "libcuda.so.1")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_a_gpu_is_answered_for_with_every_reason(fake_library: FakeLibrary) -> None:
    easy, masked, oblong, odd, off = answers(fake_library, "90")

    assert easy == "True; True"
    assert masked == (
        "False; True; FLASH_ATTENTION cannot be used: masks are not supported; there is one of shape [16, 16]"
    )
    assert "is_causal with lengths 16 and 32" in oblong
    assert odd.startswith("False; False; ") and "same last dimension; it is 64 and 60" in odd
    assert "switched off: cuda.flash_sdp was set in this program; FLASH_ATTENTION" in off
    assert "masks are not supported" in off


def test_an_old_gpu_is_refused_what_it_cannot(fake_library: FakeLibrary) -> None:
    assert answers(fake_library, "75")[0] == (
        "False; True; FLASH_ATTENTION cannot be used: the device is sm75; needs sm80 to sm121"
    )


def test_tensors_of_the_cpu_are_refused_and_silently_unless_asked() -> None:
    params = Params(X, X, X, None, 0.0, False, False)

    for name in ("flash", "efficient", "cudnn"):
        ask = getattr(mlbackends.cuda, f"can_use_{name}_attention")
        assert ask(params) is False
        with pytest.warns(UserWarning, match="cannot be used") as told:
            assert ask(params, debug=True) is False
        assert any("needs cuda tensors; these are on cpu" in str(warning.message) for warning in told)
        assert all(warning.filename == __file__ for warning in told)
        with pytest.raises(TypeError, match="must be SDPAParams, not int"):
            ask(3)


def test_sixteen_bits_may_be_kept_between_the_steps() -> None:
    with store.restored("cuda.fp16_bf16_reduction_math_sdp"):
        assert cuda_surface.fp16_bf16_reduction_math_sdp_allowed() is False
        cuda_surface.allow_fp16_bf16_reduction_math_sdp(True)
        assert cuda_surface.fp16_bf16_reduction_math_sdp_allowed() is True
        allow: Any = cuda_surface.allow_fp16_bf16_reduction_math_sdp
        with pytest.raises(RuntimeError, match="expects a bool"):
            allow(1)


def test_flash_on_cuda_is_available_where_a_backend_says_so() -> None:
    from mlbackends.sdpa.dispatch import backends

    mine = [backend for backend in backends() if backend.answers_to is sdpa.SDPBackend.FLASH_ATTENTION]
    seen = cuda_surface.is_flash_attention_available()

    assert isinstance(seen, bool)
    assert not seen or any(not backend.missing_parts() for backend in mine)
