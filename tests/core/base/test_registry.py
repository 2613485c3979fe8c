"""What other distributions add: groups of entry points, and those that nothing reads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.declared import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file of entry points of an installed distribution."""
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._entry_points.cache_clear()
    yield info / "entry_points.txt"
    registry._entry_points.cache_clear()


def test_a_group_that_nothing_reads_brings_a_warning(distribution: Path) -> None:
    distribution.write_text("[mlbackends.probe]\nour_card = our_card\n")

    with pytest.warns(
        UserWarning, match=r"other-1.*mlbackends\.probe, which nothing reads"
    ) as seen:
        assert "our_card" not in registry._added("mlbackends_probes")

    assert "did you mean 'mlbackends.probes'?" in str(seen[0].message)


def test_the_groups_of_one_file_are_apart(distribution: Path) -> None:
    distribution.write_text(
        "[console_scripts]\nx = y:main\n[mlbackends.probes]\n; a = b\nour_card = our.card [gpu]\n"
        "[mlbackends.tracers]\nour_log = our.log:tracer\n[other.mlbackends]\nz = z\n"
    )

    assert registry._added("mlbackends_probes")["our_card"] == "our.card"
    assert registry._added("mlbackends.tracing.formats") == {"our_log": "our.log:tracer"}
    assert registry._added("mlbackends_kernels.tensors") == {}


@pytest.mark.parametrize("package", registry.GROUPS)
def test_each_group_is_of_a_registry(package: str) -> None:
    registry.names(package)

    assert package in sys.modules


def test_facts_stand_in_the_probe_or_in_the_file_beside_it() -> None:
    assert facts_of("flexiblas")["backend"].kind is str
    assert facts_of("rocm")["targets"].kind == list[str]
    assert facts_of("host")["boot_id"].role == "identity"
    assert {"distribution", "built_for"} <= facts_of("torch").keys()


def test_variables_that_steer_a_probe_are_one_of_its_facts() -> None:
    assert facts_of("mkl")["environment"].kind == dict[str, str]
    assert "environment" not in facts_of("fbgemm")


def test_what_is_no_probe_has_no_facts() -> None:
    assert facts_of("no-such-probe") == {}
