"""The words that every page shares."""

from __future__ import annotations

import pytest

from mlbackends.model.dotted import undetermined
from mlbackends.model.reasons import Reason
from mlbackends.model.records import SCHEMA, Presence, ProbeReport, Report
from mlbackends_cli.text import plain, probes


@pytest.mark.parametrize(
    ("name", "probe", "expected"),
    [
        (
            "cpu",
            ProbeReport(Presence.FOUND, facts={"cores": 1, "threads": 2}),
            "1 core · 2 threads",
        ),
        ("packages", ProbeReport(Presence.FOUND, facts={"count": 1}), "1 package"),
        ("scipy", ProbeReport(Presence.FOUND, version="1.2"), ""),
    ],
)
def test_a_glance_counts_one_thing_in_the_singular_and_leaves_no_gap(
    name: str, probe: ProbeReport, expected: str
) -> None:
    assert probes.glance(name, probe) == expected


def test_a_word_before_a_comma_is_singular_too() -> None:
    limits = ProbeReport(
        Presence.FOUND, facts={"effective_cpus": 1, "effective_cpus_because": "quota"}
    )

    assert probes.glance("limits", limits) == "1 CPU usable, by the CPU quota"


def test_what_the_processor_can_do_is_shown_and_not_what_a_variable_claims() -> None:
    cpu = ProbeReport(Presence.FOUND, facts={"capability": "AVX512", "hardware_capability": "AVX2"})

    assert probes.glance("cpu", cpu) == "AVX2"


@pytest.mark.parametrize("name", ["total_bytes", "max_hertz", "load_seconds", "count"])
def test_a_number_that_no_fraction_holds_is_told_by_its_size(name: str) -> None:
    assert plain.amount(name, 10**400) == "2^1328 or beyond"
    assert plain.amount(name, -(10**400)) == "-2^1328 or beyond"


def test_what_has_no_row_is_part_of_what_strict_names() -> None:
    """A report from elsewhere may have neither a presence nor a reason."""
    mount = ProbeReport(None, reasons=(Reason("not-answering", "/nfs does not answer"),))
    found = {"mkl": ProbeReport(None), "blas": mount, "mpi": mount}
    report = Report(SCHEMA, "", Presence.FOUND, "/", "", 0.0, False, found)

    assert probes.without_row(report) == {
        "mkl": "the report gives no reason",
        "blas": "/nfs does not answer; so also mpi",
    }
    assert undetermined(report) == ["mkl", "blas", "mpi"]
