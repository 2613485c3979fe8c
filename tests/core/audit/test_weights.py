"""What a change weighs: worse is an error or a warning, and the way back a note."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.audit.compare import compare
from mlbackends.audit.reports import report_of
from mlbackends.audit.weights import weighed
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Kind

MACHINES = ("hgx-h100-eight-gpus", "broken-environment", "macbook-m3", "mi300x-eight-gpus")


def change(name: str, before: Any, after: Any) -> Change:
    kind = Kind.ADDED if before is None else Kind.REMOVED if after is None else Kind.CHANGED
    return Change(name, kind, before, after)


def severity(name: str, before: Any, after: Any) -> str:
    return str(weighed((change(name, before, after),))[0].severity)


WORSE = [
    ("torch.presence", "usable", "found", "error"),
    ("cudnn.presence", "found", "absent", "error"),
    ("nvidia.presence", "usable", "could not be determined", "error"),
    ("cudnn.libraries[libcudnn.so.9].presence", "loadable", "found", "error"),
    ("nvidia.devices[0000:17:00.0]", "NVIDIA H100", None, "error"),
    ("nvidia.gpu_count", 8, 7, "error"),
    ("nvidia.warnings.driver-mismatch", None, "the module is 570, the library 560", "error"),
    ("mkl.warnings.override-invalid", None, "MKL_NUM_THREADS is '0'", "warning"),
    ("cudnn.libraries[/opt/a.b[1]/libcudnn.so.9]", "/opt/libcudnn.so.9", None, "warning"),
    ("torch.version", "2.13.0+cu129", "2.9.1+cpu", "warning"),
    ("host.kernel_release", "6.18.44-fc-v595", "6.1.0-25-amd64", "warning"),
    ("packages.distributions.ruamel.yaml", "0.18.6", "0.17", "warning"),
    ("packages.distributions.numpy", "2.3.1", None, "warning"),
    ("torch.cuda_version", "12.9", None, "error"),
    ("cpu.avx512", ["avx512f", "avx512bw"], None, "error"),
    ("cpu.capability", "AVX512", "AVX2", "error"),
    ("cpu.avx2", True, False, "error"),
    ("limits.effective_cpus", 64, 8, "warning"),
    ("limits.open_files_limit", 1048576, 1024, "warning"),
    ("nvidia.devices[0000:17:00.0].memory_bytes", 80 << 30, 40 << 30, "warning"),
    ("cudnn.missing_sub_libraries", None, ["graph"], "warning"),
    ("host.rosetta", False, True, "warning"),
]


@pytest.mark.parametrize(("name", "before", "after", "expected"), WORSE)
def test_worse_weighs_and_the_way_back_is_a_note(name: str, before: Any, after: Any, expected: str) -> None:
    assert severity(name, before, after) == expected
    assert severity(name, after, before) == "note"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("cpu.model_name", "A", "B"),
        ("cpu.capability", "AVX512", "SVE256"),
        ("torch.version", "2.13.0+cpu", "2.13.0+cu129"),
        ("torch.version", "main", "trunk"),
        ("cpu.cores", 64, None),
        ("nvidia.presence", "could not be determined", "absent"),
        ("cudnn.missing_sub_libraries", None, []),
        ("environment.variables.PATH", "a", None),
        ("our_card.power", 3, 2),
    ],
)
def test_what_has_no_order_is_a_note_both_ways(name: str, before: Any, after: Any) -> None:
    assert severity(name, before, after) == severity(name, after, before) == "note"


def test_of_a_probe_that_is_gone_only_that_and_its_devices_weigh() -> None:
    found = weighed(
        (
            change("nvidia.presence", "usable", "absent"),
            change("nvidia.driver_release", "570", "560"),
            change("nvidia.libraries[x]", "x", None),
            change("nvidia.devices[0]", "H100", None),
        )
    )
    assert [str(weight.severity) for weight in found] == ["error", "note", "note", "error"]


_NAMES = st.sampled_from([name for name, *_ in WORSE]) | st.text(max_size=20)
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


@given(_NAMES, _SCALARS | st.just("absent") | st.just("usable"), _SCALARS)
def test_no_change_is_worse_both_ways(name: str, before: Any, after: Any) -> None:
    assert "note" in (severity(name, before, after), severity(name, after, before))


@pytest.mark.parametrize("pair", list(itertools.combinations(MACHINES, 2)), ids="-".join)
def test_swapping_two_machines_turns_worse_into_notes(pair: tuple[str, str]) -> None:
    one, other = (report_of(f"tests/hosts/{name}.machine") for name in pair)
    there = {step.name: step for step in compare(one, other).changes}
    back = {step.name: step for step in compare(other, one).changes}

    assert any(step.severity is not Severity.NOTE for step in there.values())
    for name in there.keys() & back.keys():
        both = (there[name], back[name])
        # A list that lost one thing and won another is worse than before, whichever came first.
        if not any(isinstance(step.before, list) and step.after for step in both):
            assert Severity.NOTE in (both[0].severity, both[1].severity), name


def test_the_table_names_facts_that_are_there() -> None:
    import tomllib
    from importlib.resources import files

    rows = tomllib.loads((files("mlbackends.audit") / "weights.toml").read_text())["weight"]
    names = [name for row in rows for name in row["names"]]
    assert len(names) == len(set(names))
    for name in names:
        probe, _, rest = name.partition(".")
        if "*" not in name and not rest.startswith("devices."):
            assert rest in facts_of(probe), name
