"""What is said of the kinds of devices: all of it has a source, and names only what a report can hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from mlbackends.audit import device_kinds, device_limits
from mlbackends.audit.device_limits import YARDSTICKS
from mlbackends.base import registry
from mlbackends.base.errors import UnknownName
from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.model.device_kinds import Concern, Feature, Limit, Need
from mlbackends.survey.dotted import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = device_limits.kinds()
PROBES = registry.names("mlbackends_probes")
OF_DEVICES = {"capability", "features", "float64"}
DTYPES = re.compile(r"(b?float|complex|q?u?int)\d+(x\d)?(_e\dm\d(fn|fnuz)?(_x2)?)?")


def needs(kind: str) -> Iterator[Need]:
    for limit in device_limits.load(kind).limits:
        yield from limit.lifted_by
    for feature in device_limits.load(kind).features:
        yield from feature.needs


def facts(probe: str) -> set[str]:
    return set(facts_of(probe))


def test_a_wrong_kind_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UnknownName) as error:
        device_limits.load("cudda")

    assert error.value.hint == "did you mean 'cuda'?"


def test_the_files_have_no_key_that_is_not_read() -> None:
    for path in Path(device_kinds.__file__).parent.glob("*.toml"):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for key, record in (("limits", Limit), ("features", Feature)):
            for entry in data.get(key, ()):
                assert entry.keys() <= set(record.__struct_fields__), (path.name, entry)
                for need in (*entry.get("lifted_by", ()), *entry.get("needs", ())):
                    assert need.keys() <= set(Need.__struct_fields__), (path.name, entry)


def test_a_kind_has_a_title_and_is_told_by_probes_that_are_there() -> None:
    for kind in KINDS:
        data = device_limits.load(kind)
        assert kind == data.kind
        assert data.title
        assert set(data.devices) <= set(data.probes) <= set(PROBES)
        assert len(set(data.probes)) == len(data.probes)


def test_another_distribution_adds_a_kind(tmp_path: Path) -> None:
    (tmp_path / "our_card_kind.py").write_text(
        '''"""Our cards."""
from mlbackends.model.device_kinds import Concern, Limit, Shown
KIND, DEVICES, PROBES, FEATURES = "our_card", (), ("cpu",), ()
LIMITS = (Limit("float64", Concern.DTYPE, "It has none.", "our manual"),)
SHOWN = (Shown("cores", "cpu.cores"),)
'''
    )
    metadata = tmp_path / "ours-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[mlbackends.device_kinds]\nour_card = our_card_kind\n")
    code = """
from mlbackends.audit import device_limits
data = device_limits.load("our_card")
print(data.title, data.shown, *(limit.what for limit in data.limits))
"""

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)

    assert output == "Our cards {'cpu.cores': 'cores'} float64\n"


def test_each_detail_is_a_sentence_with_a_source() -> None:
    for kind in KINDS:
        limits = device_limits.load(kind).limits
        lines: list[Limit | Feature] = [*limits, *device_limits.load(kind).features]
        assert lines
        for line in lines:
            assert re.fullmatch(r"\S.*[.]", line.detail), line.what
            assert re.fullmatch(r"\S.{8,}[^.]", line.source), line.what
            assert "  " not in line.detail + line.source + line.what
        assert len({limit.what for limit in limits}) == len(limits)


def test_a_limit_of_an_element_type_has_the_name_of_one() -> None:
    for kind in KINDS:
        for limit in device_limits.load(kind).limits:
            is_dtype = DTYPES.fullmatch(limit.what) is not None
            assert is_dtype is (limit.concern is Concern.DTYPE), (kind, limit.what)


def test_a_need_is_told_by_probes_of_the_kind() -> None:
    for kind in KINDS:
        for need in needs(kind):
            probes = {name.partition(".")[0] for name in YARDSTICKS[need.property].names}
            assert probes <= set(device_limits.load(kind).probes), (kind, need)
            assert not (need.at_least and need.one_of), (kind, need)
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
    assert {need.property for kind in KINDS for need in needs(kind)} == set(YARDSTICKS)


@pytest.mark.parametrize(
    ("probe", "of"),
    [("cuda_driver", "CUDA attribute"), ("rocm", "HIP attribute"), ("xpu", "Level Zero property")],
)
def test_a_word_of_a_driver_is_one_that_its_probe_asks_for(probe: str, of: str) -> None:
    module = registry.load("mlbackends_probes", probe)
    asked = {
        "cuda_driver": lambda: set(table("libraries/device_attributes")["cuda_features"]),
        "rocm": lambda: set(table("libraries/device_attributes")["hip_features"]),
        "xpu": lambda: {
            *module._DEVICE_FLAGS.values(),
            *module._MODULE_FLAGS.values(),
            *module._ACCESS,
        },
    }[probe]()
    wanted = {word for kind in KINDS for need in needs(kind) if need.property == of for word in need.one_of}

    assert wanted <= asked


def test_what_a_page_shows_can_be_in_a_report() -> None:
    for kind in KINDS:
        data = device_limits.load(kind)
        for name in data.shown:
            probe, _, value = name.partition(".")
            assert probe in data.probes, (kind, name)
            assert value in facts(probe) or value in FIELDS, (kind, name)
