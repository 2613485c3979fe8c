"""flash_cuda the whole way through the library to a driver: what is launched where, and what comes back.

The driver is tests/fakelibs/computing_driver.c, which has flash.cu run on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_kernels.attention_flash import hopper
from mlbackends_kernels.attention_flash.launches import block_of, short_tile

if TYPE_CHECKING:
    from tests.kernels.attention_cuda.conftest import HostKernels
    from tests.kernels.conftest import OnFakeCuda

BEFORE = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels.attention_cuda import requirements
requirements.missing_parts = lambda **_: ()
forward = mlbackends.scaled_dot_product_attention
backward = mlbackends.scaled_dot_product_attention_backward
def array(*shape): return rng.standard_normal(shape).astype(np.float16)
def compare(*pairs):
    tell([type(each).__name__ for each, _ in pairs])
    tell(max(float(abs(each.numpy() - other).max()) for each, other in pairs))
"""

COUNTED = """
from mlbackends.sdpa import attend
looked_at = []
def requested(operation, query, *args, real=attend.requested, **fields):
    looked_at.append(type(query).__name__)
    return real(operation, query, *args, **fields)
attend.requested = requested
forward(*3 * [np.ones((1, 1, 1, 1))])  # backends and switches are there
"""

TRAINED = """
q, k, v, coming = array(2, 4, 70, 32), array(2, 2, 70, 32), array(2, 2, 70, 32), array(2, 4, 70, 32)
sinks = array(4)
arrays = [on_device(each) for each in (q, k, v)]
options = dict(is_causal=True, enable_gqa=True, window=(20, -1), softcap=2.0)
with mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    out, sums = forward(*arrays, return_logsumexp=True, sinks=on_device(sinks), **options)
    found = backward(on_device(coming), *arrays, out, sums, sinks=on_device(sinks), **options)
with mlbackends.sdpa_kernel(SDPBackend.MATH):
    right, logarithms = forward(q, k, v, return_logsumexp=True, sinks=sinks, **options)
    gradients = backward(coming, q, k, v, right, logarithms, sinks=sinks, **options)
compare((out, right), (sums, logarithms), *((a, b) for a, b in zip(found, gradients) if b is not None))
"""

SERVED = """
lengths, size = (700, 3, 0), 16
pages = sum(-(-each // size) for each in lengths)
table = np.full((3, 50), 10**6, np.int32)
at, order = 0, rng.permutation(pages)
for row, each in enumerate(lengths):
    count = -(-each // size)
    table[row, :count] = order[at : at + count]
    at += count
q, k, v = array(3, 8, 1, 32), array(pages, 2, size, 32), array(pages, 2, size, 32)
options = dict(enable_gqa=True, key_lengths=lengths)
with mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    out = forward(*map(on_device, (q, k, v)), page_table=on_device(table), **options)
with mlbackends.sdpa_kernel(SDPBackend.MATH):
    right = forward(q, k, v, page_table=table, **options)
compare((out, right))
"""


@pytest.fixture
def variables(host_kernels: HostKernels) -> dict[str, str]:
    kernels = host_kernels.flash_library("float16", 64, 80, of_the_driver=True)
    return {"FAKE_CAPABILITY": "80", "FAKE_KERNELS": str(kernels)}


def launched(kernel: str, grid: int) -> str:
    block = block_of(kernel, 64, 80)
    if kernel.startswith("hopper"):
        block = hopper.block_of(hopper.tiles("float16", 64)[kernel])
    return f"launch {kernel} grid={grid},1,1 block={block.threads},1,1 shared={block.shared} stream 1 0"


def test_attention_and_its_gradients_come_back_from_a_driver(
    on_fake_cuda: OnFakeCuda, variables: dict[str, str]
) -> None:
    told = on_fake_cuda(BEFORE + TRAINED, **variables)
    kinds: Any
    kinds, worst = told.values
    assert set(kinds) == {"DeviceArray"} and worst < 5e-3
    # 70 rows of two heads that share keys in tiles of 128; 560 rows, a warp each; 4 heads; tiles of 64.
    grids = {"long": 8, "summarize": 140, "differentiate_sinks": 4}
    grids |= {"differentiate_query": 16, "differentiate_both": 8}
    assert len(kinds) == 6
    assert told.lines("launch flash") == [
        launched(f"flash_{name}", grid) for name, grid in grids.items()
    ]


def test_on_hopper_they_come_by_bulk_copies(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels
) -> None:
    kernels = str(host_kernels.flash_library("float16", 64, 90, of_the_driver=True))
    told = on_fake_cuda(BEFORE + TRAINED + TRAINED, FAKE_CAPABILITY="90", FAKE_KERNELS=kernels)
    kinds: Any
    kinds, worst, _, worst_again = told.values
    assert set(kinds) == {"DeviceArray"} and max(worst, worst_again) < 5e-3
    # 70 rows of four heads in tiles of 192, or 128 for the gradients; keys have two heads.
    grids = {"hopper_whole": 8, "flash_summarize": 140, "flash_differentiate_sinks": 4}
    grids |= {"hopper_query": 8, "hopper_both": 4}
    assert told.lines("launch ") == 2 * [launched(name, grid) for name, grid in grids.items()]
    assert told.lines("cuTensorMapEncodeTiled")[:3] == 3 * ["cuTensorMapEncodeTiled 6 4"]


def test_keys_in_pages_come_back_from_a_driver_in_parts(
    on_fake_cuda: OnFakeCuda, variables: dict[str, str]
) -> None:
    """The third time without a look, at other addresses and pages."""
    told = on_fake_cuda(
        BEFORE + COUNTED + 3 * SERVED + "tell(looked_at.count('DeviceArray'))", **variables
    )
    *found, looked_at = told.values
    assert found[::2] == 3 * [["DeviceArray"]] and max(found[1::2]) < 2e-3
    assert looked_at == 2
    # Three sequences and two heads of keys, whose 700 keys are two parts; 24 rows, a warp each.
    assert told.lines("launch flash") == 3 * [
        launched("flash_short", 3 * 2 * 2),
        launched("flash_combine", 24 // short_tile(64).warps),
    ]


def test_gradients_with_window_softcap_and_sinks_are_looked_at_twice(
    on_fake_cuda: OnFakeCuda, variables: dict[str, str]
) -> None:
    other = TRAINED.replace("(20, -1)", "(5, -1)")
    told = on_fake_cuda(
        BEFORE + COUNTED + 3 * TRAINED + other + "tell(looked_at.count('DeviceArray'))", **variables
    )
    *found, looked_at = told.values
    assert max(found[1::2]) < 1e-2 and looked_at == 2 * 2 + 2


def test_the_table_of_spans_that_a_graph_reads_stays(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        BEFORE
        + SERVED.partition("with ")[0]
        + """
import gc
from cuda.core import Device
from mlbackends.sdpa import call_cache
from mlbackends_kernels.attention_flash import device
arrays, options["page_table"] = list(map(on_device, (q, k, v))), on_device(table)
def held():
    "Return what is held once nothing but a graph may read tables."
    call_cache._kept.clear(), device._spans.cache_clear(), gc.collect()
    return mlbackends.cuda.memory_stats()["allocation.all.current"]
with mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    for _ in range(3): forward(*arrays, **options)
    tell(held())
    for _ in range(3): forward(*arrays, **options)
    builder = Device(0).create_stream().create_graph_builder()
    builder.begin_building()
    with mlbackends.cuda.on_stream(builder.stream):
        out = forward(*arrays, **options)
        del out
    builder.end_building()
    tell(held())
""",
        FAKE_CAPABILITY="80",
        FAKE_KERNELS="/nothing",
    )
    assert told.values == [4, 5]
