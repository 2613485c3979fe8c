"""What other distributions add: groups of entry points, and those that nothing reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.declared import facts_of

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path, package: str, entry_points: str) -> tuple[list[str], str]:
    """Return the names in a registry where another distribution is installed too, and what is warned of."""
    info = folder / "other-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(entry_points)
    program = f"from mlbackends.base import registry; print(*registry.names({package!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(), done.stderr


def test_a_group_that_nothing_reads_brings_a_warning(tmp_path: Path) -> None:
    entry_points = "[mlbackends.probe]\nour_card = our_card\n"
    found, warned = names(tmp_path, registry.PROBES, entry_points)

    assert "our_card" not in found
    assert re.search(r"other-1.*mlbackends\.probe, which nothing reads", warned)
    assert "did you mean 'mlbackends.probes'?" in warned


@pytest.mark.parametrize(
    ("package", "added"),
    [
        (registry.PROBES, {"our_card"}),
        ("mlbackends.tracing.formats", {"our_log"}),
        (f"{registry.KERNELS}.tensors", set()),
    ],
)
def test_the_groups_of_one_file_are_apart(tmp_path: Path, package: str, added: set[str]) -> None:
    entry_points = (
        "[console_scripts]\nx = y:main\n[mlbackends.probes]\n; a = b\nour_card = our.card [gpu]\n"
        "[mlbackends.tracers]\nour_log = our.log:tracer\n[other.mlbackends]\nz = z\n"
    )
    found, _ = names(tmp_path, package, entry_points)

    assert set(found) - registry.own_names(package) == added


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
