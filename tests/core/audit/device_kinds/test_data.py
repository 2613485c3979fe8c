"""What is said of the kinds of devices: all of it has a source, and names only what a report can hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from mlbackends.audit import device_limits
from mlbackends.model import registry
from mlbackends.model.device_kinds import YARDSTICKS, Concern, Feature, Limit, Need
from mlbackends.model.dotted import FIELDS
from mlbackends.model.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = device_limits.kinds()
each_kind = pytest.mark.parametrize("kind", KINDS)
PROBES = registry.names("mlbackends_probes")
OF_DEVICES = {"capability", "features", "float64"}
DTYPES = re.compile(
    r"(b?float|complex|q?u?int)\d+(x\d)?(_e\dm\d(fn|fnuz)?(_x2)?)?",
)


def needs(kind: str) -> Iterator[Need]:
    for limit in device_limits.limits_of(kind):
        yield from limit.lifted_by
    for feature in device_limits.features_of(kind):
        yield from feature.needs


def facts(probe: str) -> set[str]:
    return {fact.name for fact in registry.load("mlbackends_probes", probe).FACTS}


def test_the_kinds_that_people_ask_for_are_there() -> None:
    assert {"cpu", "cuda", "mps", "mtia", "rocm", "xpu"} <= set(KINDS)


def test_a_wrong_kind_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UnknownName) as error:
        device_limits.limits_of("cudda")

    assert error.value.hint == "did you mean 'cuda'?"


@each_kind
def test_a_kind_has_a_title_and_is_told_by_probes_that_are_there(kind: str) -> None:
    data = device_limits.load(kind)

    assert kind == data.KIND
    assert device_limits.title(kind)
    assert set(data.DEVICES) <= set(data.PROBES) <= set(PROBES)
    assert len(set(data.PROBES)) == len(data.PROBES)


@each_kind
def test_whatever_is_said_is_a_sentence_with_a_source(kind: str) -> None:
    told: list[Limit | Feature] = [
        *device_limits.limits_of(kind),
        *device_limits.features_of(kind),
    ]
    assert told
    for each in told:
        assert re.fullmatch(r"\S.*[.]", each.detail), each.what
        assert re.fullmatch(r"\S.{8,}[^.]", each.source), each.what
        assert "  " not in each.detail + each.source + each.what
    names = [each.what for each in device_limits.limits_of(kind)]
    assert len(set(names)) == len(names)


@each_kind
def test_a_limit_of_an_element_type_has_the_name_of_one(kind: str) -> None:
    for limit in device_limits.limits_of(kind):
        is_dtype = DTYPES.fullmatch(limit.what) is not None
        assert is_dtype is (limit.concern is Concern.DTYPE), limit.what


@each_kind
def test_a_need_is_told_by_probes_of_the_kind(kind: str) -> None:
    for need in needs(kind):
        probes = {name.partition(".")[0] for name in YARDSTICKS[need.of].names}
        assert probes <= set(device_limits.probes_of(kind)), need
        assert not (need.at_least and need.one_of), need
        if need.at_least:
            Version(need.at_least)


@pytest.mark.parametrize("name", YARDSTICKS)
def test_a_yardstick_reads_what_a_report_can_hold(name: str) -> None:
    yardstick = YARDSTICKS[name]
    for dotted in yardstick.names:
        probe, _, value = dotted.partition(".")
        if yardstick.field:
            assert value == "devices"
            assert yardstick.field in OF_DEVICES
        else:
            assert value in facts(probe) or value == "version", dotted


def test_every_yardstick_is_needed() -> None:
    assert {need.of for kind in KINDS for need in needs(kind)} == set(YARDSTICKS)


@pytest.mark.parametrize(
    ("probe", "of"),
    [("cuda_driver", "CUDA attribute"), ("rocm", "HIP attribute"), ("xpu", "Level Zero property")],
)
def test_a_word_of_a_driver_is_one_that_its_probe_asks_for(probe: str, of: str) -> None:
    module = registry.load("mlbackends_probes", probe)
    asked = {
        "cuda_driver": lambda: set(module._FEATURES),
        "rocm": lambda: set(module._ATTRIBUTES),
        "xpu": lambda: {
            *module._DEVICE_FLAGS.values(),
            *module._MODULE_FLAGS.values(),
            *module._ACCESS,
        },
    }[probe]()
    wanted = {
        word for kind in KINDS for need in needs(kind) if need.of == of for word in need.one_of
    }

    assert wanted <= asked


@each_kind
def test_what_a_page_shows_can_be_in_a_report(kind: str) -> None:
    data = device_limits.load(kind)
    names = [shown.name for shown in data.SHOWN]

    assert len(set(names)) == len(names)
    for name in names:
        probe, _, value = name.partition(".")
        assert probe in data.PROBES, name
        assert value in facts(probe) or value in FIELDS, name


def test_the_element_types_that_a_test_would_ask_for() -> None:
    def of(kind: str) -> dict[str, str]:
        limits = device_limits.limits_of(kind)
        return {
            each.what: " and ".join(map(str, each.lifted_by))
            for each in limits
            if each.concern is Concern.DTYPE
        }

    mps, cuda = of("mps"), of("cuda")
    assert mps["float64"] == mps["complex128"] == ""
    assert mps["bfloat16"] == mps["complex64"] == "macOS 14.0"
    assert (cuda["bfloat16"], cuda["float8_e4m3fn"], cuda["float16"]) == (
        "compute capability 8.0",
        "compute capability 8.9",
        "compute capability 5.3",
    )
    assert of("xpu")["float64"] == "Level Zero property fp64"
    assert of("rocm")["float8_e4m3fn"] == "gfx target gfx950, gfx1200 or gfx1201"
