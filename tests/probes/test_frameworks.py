"""What holds for every probe that reads Python packages, whatever it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path

PROBES = (
    "cupy",
    "cutlass",
    "flash_attention",
    "jax",
    "numpy",
    "onnxruntime",
    "opt_einsum",
    "scipy",
    "tensorflow",
    "torch",
    "transformer_engine",
    "triton",
    "xformers",
)


@pytest.mark.parametrize("name", [*PROBES, "packages", "compilers"])
def test_a_machine_with_nothing_says_what_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "proc").mkdir()
    finding = registry.load("mlbackends_probes", name).find(Host(str(tmp_path)))

    assert finding.presence is None
    assert finding.libraries == ()
    assert [reason.code for reason in finding.reasons] == ["not-found"]
    assert finding.warnings == ()


@pytest.mark.parametrize("name", [*PROBES, "packages", "compilers"])
def test_every_fact_of_this_environment_is_declared(name: str) -> None:
    module = registry.load("mlbackends_probes", name)

    told = set(module.find(Host()).facts)

    assert told <= facts_of(name).keys()
