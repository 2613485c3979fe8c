"""The devices that can be asked about: every row is a device that rules can judge."""

from __future__ import annotations

import pytest

import mlbackends.survey
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device, Presence, ProbeReport, Report
from mlbackends.sdpa.named_devices import NAMED, NamedDevice, canonical, device

SPEC = TensorSpec((1, 1, 2, 8), "float32")


@pytest.mark.parametrize("row", NAMED.values(), ids=lambda row: row.name)
def test_a_row_says_what_it_is_and_who_says_so(row: NamedDevice) -> None:
    assert row.title and row.source
    assert not row.here
    assert device(row.name) is row
    problem = AttentionProblem(query=SPEC, key=SPEC, value=SPEC, device=row.device)
    assert (problem.capability is None) is (problem.platform != "cuda")


def test_the_digits_of_a_name_are_the_capability() -> None:
    assert device("sm90").device.capability == "9.0"
    assert device("sm121").device.capability == "12.1"
    assert device("gfx942").device.capability == "gfx942"


def test_this_machine_is_here() -> None:
    assert device("cpu").here


@pytest.mark.parametrize(
    ("typed", "meant"), [("sm91", "sm90"), ("gfx943", "gfx942"), ("cpu:avx3", "cpu:avx2")]
)
def test_a_wrong_name_gets_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        canonical(typed)
    assert meant in caught.value.hint


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("SM80", "sm80"),
        ("sm_90", "sm90"),
        ("cuda:sm90", "sm90"),
        ("cuda:sm_90a", "sm90"),
        ("cuda:h100", "sm90"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "sm89"),
        ("RTX 4090 D", "sm89"),
        ("compute_120", "sm120"),
        ("9.0", "sm90"),
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("rocm:gfx942", "gfx942"),
        ("h100", "sm90"),
        ("H200", "sm90"),
        ("a100", "sm80"),
        ("b200", "sm100"),
        ("rtx4090", "sm89"),
        ("RTX 3090 Ti", "sm86"),
        ("rtx-5090", "sm120"),
        ("p40", "sm61"),
        ("mi300x", "gfx942"),
        ("MI250X", "gfx90a"),
        ("NVIDIA H100 80GB HBM3", "sm90"),
        ("NVIDIA A100-SXM4-80GB", "sm80"),
        ("Tesla V100-SXM2-16GB", "sm70"),
        ("NVIDIA RTX PRO 6000", "sm120"),
        ("AMD Radeon RX 7900 XTX", "gfx1100"),
        ("Apple M3 Max", "mps"),
        ("m4", "mps"),
        ("CPU:AVX2", "cpu:avx2"),
    ],
)
def test_what_people_and_drivers_call_a_device_is_understood(typed: str, name: str) -> None:
    found, meant = device(canonical(typed)).device, NAMED.get(name)

    assert canonical(typed) == name if meant is None else found.kind == meant.device.kind
    assert meant is None or found.kind == "mps" or found.capability == meant.device.capability


@pytest.mark.parametrize(
    ("typed", "slug"),
    [("gfx1250", "mi455x-gfx1250"), ("sm107", "rubin-r100-vr200"), ("10.7", "rubin-r100-vr200")],
)
def test_what_code_is_compiled_for_names_its_only_product(typed: str, slug: str) -> None:
    assert canonical(typed) == slug


def test_this_machine_s_cuda_devices_have_numbers() -> None:
    assert (canonical("cuda:0"), canonical("cuda:1")) == ("cuda", "cuda:1")


def test_products_of_one_generation_differ() -> None:
    names = [device(name).device.name for name in ("h100", "H20", "NVIDIA H100 PCIe", "L4", "rtx 4090")]

    assert names == ["H100 SXM", "H20", "H100 PCIe", "L4", "GeForce RTX 4090"]


@pytest.mark.parametrize("typed", ["h300", "gpu", "mi999", "", "4", "9" * 5000])
def test_no_other_device_is_suggested_for_one_that_is_not_there(typed: str) -> None:
    with pytest.raises(UnknownName) as caught:
        canonical(typed)
    assert caught.value.hint == "`backends sdpa list --devices` lists all devices"


@pytest.mark.parametrize(("typed", "meant"), [("h1000", "h100"), ("GB2000", "gb200"), ("t44", "t4")])
def test_a_slip_in_a_product_is_answered_with_the_product(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        canonical(typed)
    assert caught.value.hint == f"did you mean {meant!r}?"


@pytest.mark.parametrize("typed", ["cuda:x", "cuda:-1", "cuda:"])
def test_a_wrong_number_of_a_device_is_answered_with_a_right_one(typed: str) -> None:
    with pytest.raises(UnknownName) as caught:
        canonical(typed)
    assert caught.value.hint.endswith("; cuda:1 is this machine's second CUDA device")


def test_a_device_of_which_nothing_is_known_does_not_move_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = Device("cuda", 1, name="NVIDIA H200", capability="9.0")
    probe = ProbeReport(presence=Presence.USABLE, devices=(Device("cuda", 0), second))
    report = Report("", "", Presence.USABLE, "/", "", 0.0, True, {"cuda_driver": probe})
    monkeypatch.setattr(mlbackends.survey, "survey", lambda *_, **__: report)

    assert device("cuda:1").device is second
    with pytest.raises(BadInput, match="this machine has no CUDA device 0"):
        device("cuda")


@pytest.mark.parametrize(
    "row",
    [row for row in NAMED.values() if row.device.kind in ("cuda", "rocm")],
    ids=lambda row: row.name,
)
def test_every_product_in_a_title_is_understood(row: NamedDevice) -> None:
    for product in filter(None, row.title.partition(": ")[2].partition(" and ")[0].split(", ")):
        if not product.endswith("series"):
            found = device(canonical(product)).device
            assert (found.kind, found.capability) == (row.device.kind, row.device.capability)
