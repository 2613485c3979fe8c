"""Differences of reports: what is one, what is none, and that each is true of both reports."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.audit.compare import TOLERANCE, compare, narrowed
from mlbackends.audit.reports import report_of
from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason
from mlbackends.model.difference import Change, Kind
from mlbackends.model.records import (
    IMPORTED,
    OPENED,
    Failure,
    Library,
    Presence,
    ProbeReport,
    Report,
)
from mlbackends.survey import dotted
from mlbackends_cli.report.commands.schema import SCHEMAS

HGX = "tests/hosts/hgx-h100-eight-gpus.machine"
BROKEN = "tests/hosts/broken-environment.machine"


@pytest.fixture(scope="module")
def hgx() -> Report:
    return report_of(HGX)


@pytest.fixture(scope="module")
def broken() -> Report:
    return report_of(BROKEN)


def with_fact(report: Report, probe: str, fact: str, value: Any) -> Report:
    told = report.probes[probe]
    facts = {**told.facts, fact: value}
    return replace(report, probes={**report.probes, probe: replace(told, facts=facts)})


def with_probe(report: Report, name: str, **fields: Any) -> Report:
    return replace(report, probes={**report.probes, name: replace(report.probes[name], **fields)})


def small(**libraries: tuple[str, str]) -> Report:
    """Return a report with one probe, whose libraries are given as soname=(path, version)."""
    found = tuple(
        Library("x", path, soname=name.replace("_", "."), version=version)
        for name, (path, version) in libraries.items()
    )
    probe = ProbeReport(Presence.FOUND, libraries=found)
    return Report("backends.report/1", "t", Presence.FOUND, "/", "", 0.0, True, {"cudnn": probe})


def changes(before: Report, after: Report) -> dict[str, Change]:
    return {change.name: change for change in compare(before, after).changes}


def test_a_report_does_not_differ_from_itself(hgx: Report, broken: Report) -> None:
    assert not compare(hgx, hgx).changes
    assert not compare(broken, broken).changes


def test_a_package_that_was_opened_is_not_worse_than_one_that_was_imported(hgx: Report) -> None:
    hgx = replace(hgx, depth=Presence.USABLE)
    imported = with_probe(
        hgx,
        "torch",
        presence=Presence.USABLE,
        facts=hgx.probes["torch"].facts | {"imports": {"torch": IMPORTED}, "learned": 1},
    )
    opens = Reason("not-computed", "its extension module opens")
    opened = with_fact(hgx, "torch", "imports", {"torch": OPENED})
    opened = with_probe(opened, "torch", presence=Presence.LOADABLE, reasons=(opens,))
    for less in (opened, hgx):  # or it has no extension module
        assert not compare(imported, less).changes
        assert not compare(less, imported).changes
    newer = with_probe(opened, "torch", version="9.9")
    assert {*changes(imported, newer)} == {"torch.version"}
    failing = with_fact(hgx, "torch", "imports", {"torch": "import torch fails: no"})
    gone = with_probe(hgx, "torch", presence=Presence.ABSENT, facts={})
    assert {"torch.presence", "torch.imports.torch"} <= changes(imported, failing).keys()
    assert {"torch.presence", "torch.imports"} <= changes(imported, gone).keys()


def test_the_way_back_is_the_mirror_of_the_way(hgx: Report, broken: Report) -> None:
    there, back = changes(hgx, broken), changes(broken, hgx)
    mirrored = {Kind.ADDED: Kind.REMOVED, Kind.REMOVED: Kind.ADDED, Kind.CHANGED: Kind.CHANGED}
    # A label is taken from the second report, so that one of a moved library may differ.
    common = there.keys() & back.keys()
    assert len(common) > 0.9 * len(there)
    for name in common:
        assert back[name].kind is mirrored[there[name].kind]
        assert (back[name].before, back[name].after) == (there[name].after, there[name].before)


def test_each_changed_fact_is_what_both_reports_say(hgx: Report, broken: Report) -> None:
    seen = 0
    for change in compare(hgx, broken).changes:
        for report, value in ((hgx, change.before), (broken, change.after)):
            if isinstance(value, int | float) and "[" not in change.name:
                assert dotted.value(report, change.name) == value, change.name
                seen += 1
    assert seen >= 10


@given(seed=st.integers(0, 1 << 16))
def test_the_order_of_devices_and_libraries_is_no_difference(seed: int) -> None:
    hgx = HGX_REPORT
    shuffle = random.Random(seed).sample
    probes = {
        name: replace(
            probe,
            devices=tuple(shuffle(probe.devices, len(probe.devices))),
            libraries=tuple(shuffle(probe.libraries, len(probe.libraries))),
        )
        for name, probe in hgx.probes.items()
    }
    assert not compare(hgx, replace(hgx, probes=probes)).changes


HGX_REPORT = report_of(HGX)


@given(
    st.sampled_from(
        [
            (name, fact)
            for name, probe in HGX_REPORT.probes.items()
            for fact, value in probe.facts.items()
            if isinstance(value, str) and (name, fact) != ("host", "host_name")
        ]
    ),
    st.text(min_size=1),
)
def test_a_fact_that_is_changed_is_the_only_difference(where: tuple[str, str], value: str) -> None:
    probe, fact = where
    after = with_fact(HGX_REPORT, probe, fact, value)
    found = [change.name for change in compare(HGX_REPORT, after).changes]
    role = {
        "host.boot_id",
        "limits.scheduler_job",
        "limits.cpu_quota_group",
        "limits.memory_limit_group",
    }
    if value == HGX_REPORT.probes[probe].facts[fact] or f"{probe}.{fact}" in role:
        assert found == []
    elif fact != "prefix":  # from there paths are named, so that others change with it
        assert found == [f"{probe}.{fact}"]


def test_volatile_and_identifying_values_are_no_difference(hgx: Report) -> None:
    other = with_fact(hgx, "memory", "free_bytes", 1)
    other = with_fact(other, "host", "host_name", "other")
    assert not compare(hgx, other).changes


def test_a_metric_may_differ_by_a_hundredth(hgx: Report) -> None:
    size = hgx.probes["memory"].facts["total_bytes"]
    assert isinstance(size, int)
    near = with_fact(hgx, "memory", "total_bytes", int(size * (1 - TOLERANCE * 0.9)))
    far = with_fact(hgx, "memory", "total_bytes", int(size * (1 - TOLERANCE * 1.1)))
    assert not compare(hgx, near).changes
    assert list(changes(hgx, far)) == ["memory.total_bytes"]


def test_a_metric_of_four_hundred_digits_is_compared_as_exactly_as_any(hgx: Report) -> None:
    size = 10**400
    huge, near, far = (
        with_fact(hgx, "memory", "total_bytes", size - part) for part in (0, size // 100, size // 100 + 1)
    )

    assert not compare(huge, near).changes
    assert list(changes(huge, far)) == ["memory.total_bytes"]
    assert list(changes(hgx, huge)) == ["memory.total_bytes"]


def test_what_could_not_be_told_has_not_gone(hgx: Report) -> None:
    failed = ProbeReport(None, failure=Failure("it hung"))
    other = replace(hgx, probes={**hgx.probes, "nvidia": failed})
    (change,) = compare(hgx, other).changes
    assert (change.name, change.after) == ("nvidia.presence", "could not be determined")


def test_a_list_tells_what_left_it_and_what_came() -> None:
    before = with_fact(small(), "cudnn", "sub_libraries", ["a", "b", "c"])
    after = with_fact(small(), "cudnn", "sub_libraries", ["c", "d", "b"])
    (change,) = compare(before, after).changes
    assert (change.before, change.after) == (["a"], ["d"])


def test_a_warning_that_measures_is_the_same_warning(hgx: Report) -> None:
    before = with_probe(hgx, "limits", warnings=(Reason("throttled", "in 40% of its periods"),))
    after = with_probe(hgx, "limits", warnings=(Reason("throttled", "in 41% of its periods"),))
    gone = with_probe(hgx, "limits", warnings=())
    assert not compare(before, after).changes
    assert "limits.warnings.throttled" in changes(before, gone)


def test_a_library_is_known_by_its_soname_and_path() -> None:
    before = small(libcudnn_so_9=("/a/libcudnn.so.9", "9.1"), libcudnn_so_8=("/b/l.so.8", "8.9"))
    after = small(libcudnn_so_9=("/a/libcudnn.so.9", "9.2"), libcudnn_ops_so_9=("/a/o", "9.2"))
    found = changes(before, after)
    assert found["cudnn.libraries[libcudnn.so.9].version"].after == "9.2"
    assert found["cudnn.libraries[libcudnn.so.8]"].kind is Kind.REMOVED
    assert found["cudnn.libraries[libcudnn.ops.so.9]"].kind is Kind.ADDED
    assert len(found) == 3


def test_an_environment_in_another_folder_is_the_same_environment() -> None:
    def environment(prefix: str) -> Report:
        report = small(libcudnn_so_9=(f"{prefix}/lib/libcudnn.so.9", "9.1"))
        python = ProbeReport(Presence.FOUND, facts={"prefix": prefix})
        return replace(report, probes={**report.probes, "python": python})

    assert not compare(environment("/srv/one/venv"), environment("/home/other/v2")).changes
    # Everything is below /usr: there a path says where a thing is.
    assert compare(environment("/usr"), environment("/usr/local")).changes


def test_a_deeper_look_is_no_difference(hgx: Report) -> None:
    deeper = with_fact(replace(hgx, depth=Presence.USABLE), "openmp", "max_threads", 64)
    deeper = with_probe(deeper, "openmp", presence=Presence.USABLE)
    difference = compare(hgx, deeper)
    assert difference.changes == ()
    assert "values that only the deeper one has were not compared" in difference.notes[0]


def test_reports_that_share_no_probe_cannot_be_compared(hgx: Report) -> None:
    with pytest.raises(BadInput, match="no probe in common"):
        compare(small(), replace(hgx, probes={"cpu": hgx.probes["cpu"]}))


def test_a_probe_that_one_report_lacks_is_told_and_not_compared(hgx: Report) -> None:
    some = replace(hgx, probes={"cpu": hgx.probes["cpu"]})
    difference = compare(some, hgx)
    assert not difference.changes
    assert difference.notes[0].startswith("only in the second, so not compared: ")


@pytest.mark.parametrize(
    ("glob", "fits"),
    [
        ("cpu", True),
        ("cpu.*", True),
        ("cpu.cores", True),
        ("cpu.core", False),
        ("*.cores", True),
        ("c?u.cores", True),
        ("cudnn.libraries[libcudnn.so.9]", False),
    ],
)
def test_only_and_ignore_take_names_and_what_is_below_them(
    hgx: Report, broken: Report, glob: str, fits: bool
) -> None:
    difference = compare(hgx, broken)
    only = {change.name for change in narrowed(difference, only=(glob,)).changes}
    without = {change.name for change in narrowed(difference, ignored=(glob,)).changes}
    assert ("cpu.cores" in only) is fits
    assert ("cpu.cores" in without) is not fits
    assert len(only) + len(without) == len(difference.changes)


def test_a_difference_fits_its_schema(hgx: Report, broken: Report) -> None:
    encoded = msgspec.json.encode(compare(hgx, broken))
    jsonschema.validate(msgspec.json.decode(encoded), SCHEMAS["difference"]())
