"""The rows of products.toml: complete, plausible, and each told from the others."""

from __future__ import annotations

import pytest

from mlbackends.libraries.products import Product, product_of, products, products_like

each = pytest.mark.parametrize("row", products(), ids=lambda row: row.slug)


@each
def test_a_row_is_found_by_its_name_and_says_where_it_is_from(row: Product) -> None:
    assert product_of(row.slug) is row
    assert row.sources and row.kind


@each
def test_numbers_are_plausible(row: Product) -> None:
    assert row.bandwidth is None or 2e10 <= row.bandwidth <= 3e13
    assert row.memory is None or 2**30 <= row.memory <= 2**42
    assert row.l2 is None or row.l2 < 2**30
    assert not set(row.derived) - set(row.peaks)
    peaks = row.peaks
    # A shorter type is never slower, except where the longer one has matrix units of its own.
    is_slower = peaks.get("float16", 1e9) < 0.9 * peaks.get("float32", 0)
    assert not is_slower or row.kind in ("cuda", "hpu", "mps", "xpu")
    assert peaks.get("float8", 1e9) >= peaks.get("bfloat16", 0)


def test_names_differ() -> None:
    slugs = [row.slug for row in products()]
    assert len(set(slugs)) == len(slugs) >= 150


@pytest.mark.parametrize(
    ("capability", "threads", "blocks"),
    [("7.5", 1024, 16), ("8.0", 2048, 32), ("8.6", 1536, 16), ("8.7", 1536, 16), ("8.9", 1536, 24),
     ("9.0", 2048, 32), ("10.0", 2048, 32), ("12.0", 1536, 24), ("12.1", 1536, 24)],
)  # fmt: skip
def test_limits_are_those_of_nvidia_s_table(capability: str, threads: int, blocks: int) -> None:
    """Source: CUDA Programming Guide, Compute Capabilities."""
    rows = [row for row in products() if row.target == capability]

    assert rows
    assert {(row.threads_per_sm, row.blocks_per_sm) for row in rows} == {(threads, blocks)}


def test_products_of_one_capability_differ() -> None:
    h100, h20, l4, rtx = (product_of(name) for name in ("h100", "h20", "l4", "rtx 4090"))
    assert h100 and h20 and l4 and rtx

    assert h100.peaks["bfloat16"] > 6 * h20.peaks["bfloat16"] and h20.bandwidth > h100.bandwidth  # type: ignore[operator]
    assert l4.target == rtx.target and rtx.bandwidth > 3 * l4.bandwidth  # type: ignore[operator]


@pytest.mark.parametrize(
    "name",
    ["R100", "B300", "GB10", "Thor", "RTX PRO 6000", "RTX 5090", "MI350X", "MI355X", "Gaudi 3", "Trainium 2",
     "Trainium 3", "TPU v7", "Arc Pro B60", "Apple M5"],
)  # fmt: skip
def test_new_products_are_there(name: str) -> None:
    words = name.lower().split()
    assert [row for row in products() if all(word in f"{row.name} {row.products}".lower() for word in words)]


def test_the_least_time_is_that_of_arithmetic_or_of_bandwidth() -> None:
    h100 = product_of("h100")
    assert h100

    assert h100.seconds(989.4e12, 0, "bfloat16") == (1.0, "arithmetic")
    assert h100.seconds(0, 3.35e12, "bfloat16") == (1.0, "bandwidth")
    assert h100.seconds(1, 1, "int3") is None
    assert product_of("") is product_of("NVIDIA Unheard") is None


@pytest.mark.parametrize(
    ("name", "slug"),
    [("TPU v7", "tpu-v7-ironwood"), ("Jetson Thor", "jetson-agx-thor-t5000"), ("MI455X", "mi455x-gfx1250"),
     ("Apple M4 Max", "apple-m4-max-40-gpu-cores"),
     ("Apple M4 Max, 32 GPU cores", "apple-m4-max-32-gpu-cores")],
)  # fmt: skip
def test_names_may_leave_out_what_is_in_brackets_and_the_better_of_two_is_meant(name: str, slug: str) -> None:
    found = product_of(name)
    assert found and found.slug == slug
    assert products_like("4090") == ["geforce-rtx-4090", "geforce-rtx-4090-d"]
