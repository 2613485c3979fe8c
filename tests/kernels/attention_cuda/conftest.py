"""Kernels of attention.cu on the CPU, compiled once for all tests of a run."""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernels.attention_cuda.host_kernels import HostKernels

_spec = spec_from_file_location("host_kernels", Path(__file__).with_name("host_kernels.py"))
assert _spec is not None and _spec.loader is not None
_module = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(_module)


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    base = tmp_path_factory.getbasetemp()
    # All processes of a run share the compiled libraries, through the parent of their folders.
    made: HostKernels = _module.HostKernels(
        (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "host-kernels"
    )
    return made
