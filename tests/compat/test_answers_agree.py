"""The answers that mean the same in torch and here, where torch's wheel is what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import mlbackends

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def asked(name: str) -> tuple[Any, Any]:
    module, _, function = name.partition(".")
    return tuple(getattr(getattr(side, module), function)() for side in (torch.backends, mlbackends))


@pytest.mark.parametrize(
    "name",
    [
        "mkl.is_available", "mkldnn.is_available", "openmp.is_available", "nnpack.is_available",
        "opt_einsum.is_available", "opt_einsum.get_opt_einsum", "kleidiai.is_available",
        "mkldnn.is_acl_available", "mps.is_available", "mps.is_built", "cuda.is_ck_sdpa_available",
        "cpu.get_cpu_capability",
    ],
)  # fmt: skip
def test_an_answer_is_torchs(name: str) -> None:
    theirs, ours = asked(name)

    assert ours == theirs
    assert type(ours) is type(theirs)


@pytest.mark.parametrize(
    "name",
    ["cudnn.is_available", "cudnn.version", "cusparselt.is_available", "cusparselt.version",
     "cusparselt.get_max_alg_id"],
)  # fmt: skip
def test_what_is_in_no_file_is_absent_in_both(name: str) -> None:
    from mlbackends.switches import availability

    theirs, ours = asked(name)

    assert ours == theirs or availability.is_found(name.partition(".")[0])


def test_the_quantized_engines_are_torchs_in_its_order() -> None:
    ours, theirs = mlbackends.quantized, torch.backends.quantized

    assert ours.supported_engines == theirs.supported_engines
    assert ours.engine == theirs.engine


def test_xnnpack_is_in_torch_or_not() -> None:
    import importlib

    theirs = importlib.import_module("torch.backends.xnnpack")

    assert mlbackends.xnnpack.enabled == theirs.enabled


def test_a_missing_opt_einsum_is_missed_alike() -> None:
    program = """if True:
        import sys
        sys.modules["opt_einsum"] = None
        import {0} as backends
        def outcome(action):
            try: return action()
            except Exception as error: return type(error).__name__
        module = backends.opt_einsum
        print([
            module.is_available(), module.get_opt_einsum(), module.enabled, module.strategy,
            outcome(lambda: module.set_flags(True)), outcome(lambda: module.set_flags(None, "auto")),
            outcome(lambda: module.set_flags(False)), outcome(lambda: module.set_flags()),
        ])
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", program.format(package)],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout
        for package in ("torch.backends", "mlbackends")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert said[0].startswith("[False, None, False, None, 'ValueError', 'ValueError'")
