"""What makers state of a device, by the driver's name for it and the element type."""

from __future__ import annotations

import pytest

from mlbackends.libraries.products import product_of
from mlbackends.model.checked import DeviceSpeeds
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.speed import stated_speeds
from mlbackends.switches import store


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM, 80 GB"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A11", None),
        ("", None),
    ],
)
def test_a_device_is_known_by_the_driver_s_name(name: str, row: str | None) -> None:
    found = product_of(name)
    assert (found and found.name) == row


def stated(words: str, **device: str) -> DeviceSpeeds:
    (wording,) = parse(f"--shape 1,1,8,8 {words}")
    place = Device(**{"kind": "cuda", "index": 0, "name": "NVIDIA H200", **device})  # type: ignore[arg-type]
    return stated_speeds(wording.problem(place), DeviceSpeeds(1e12, "a copy"))


def test_the_peak_is_that_of_the_element_type_and_says_its_clock() -> None:
    half, single = stated("--dtype bfloat16"), stated("")

    assert (half.stated_gflops, half.stated_bytes_per_second) == (989400, 4.8e12)
    assert half.stated_by.startswith("H200 SXM, bfloat16, at 1830 MHz: NVIDIA")
    assert (single.stated_gflops, single.bandwidth_by) == (66900, "a copy")
    with store.applied({"cuda.matmul.fp32_precision": "tf32"}):
        assert stated("").stated_gflops == 494700
    assert stated("--dtype float64", name="NVIDIA L4").stated_gflops is None


def test_what_is_not_written_down_is_not_guessed() -> None:
    for unknown in ({"name": "NVIDIA Unheard"}, {"kind": "mig"}):
        found = stated("", **unknown)
        assert found.stated_gflops is None and "no stated speeds are known" in found.stated_by
