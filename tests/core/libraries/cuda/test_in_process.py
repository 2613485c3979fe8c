"""The devices of this process, as a stub driver counts them, and what torch's names make of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stubs are Linux's libraries")

PROGRAM = """
import ctypes, json, sys
from mlbackends import cuda
from mlbackends.libraries.cuda import in_process
count = in_process.device_count()
first = [in_process.current_device(), in_process.capability(0)]
sizes = [cuda.cublas_workspace_size(), cuda.cublaslt_workspace_size()]
plans = []
if count > 1:
    ctypes.CDLL("libcuda.so.1").cuCtxSetCurrent(ctypes.c_void_p(2))
    cuda.cufft_plan_cache.max_size = 3
    plans = [in_process.current_device(), *(cuda.cufft_plan_cache[index].max_size for index in (0, 1))]
print(json.dumps([count, *first, *sizes, plans, "torch" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, [1, 0, [9, 0], 32 << 20, 1 << 20, [], False]),
        ({"FAKE_GPUS": "2", "FAKE_CAPABILITY": "86"}, [2, 0, [8, 6], 8519680, 1 << 20, [1, 4096, 3], False]),
        ({"FAKE_GPUS": "0"}, [0, 0, None, 8519680, 1 << 20, [], False]),
        ({"FAKE_INIT": "803"}, [0, 0, None, 8519680, 1 << 20, [], False]),
    ],
)
def test_the_driver_s_devices_are_counted(
    variables: dict[str, str], found: list[Any], fake_library: FakeLibrary
) -> None:
    folder = str(fake_library("computing_driver", "libcuda.so.1").parent)
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(done.stdout) == found
