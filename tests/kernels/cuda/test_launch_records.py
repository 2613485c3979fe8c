"""What our kernels are launched with, as a driver sees it: sizes, stream, and each argument."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("numpy")

from mlbackends_kernels.attention_cuda.launches import Call, tile_of
from mlbackends_kernels.cuda import softmax

if TYPE_CHECKING:
    from tests.kernels.conftest import OnFakeCuda, Told

ATTENTION = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels.attention_cuda import requirements
requirements.missing_parts = lambda *_, **__: ()
q = on_device(np.zeros((2, 4, 70, 32), "f2"))
k, v = (on_device(np.zeros((2, 2, 90, width), "f2")) for width in (32, 24))
mask = on_device(np.zeros((4, 1, 90), "f2"))
def attend(kind, **options):
    with mlbackends.sdpa_kernel(kind), mlbackends.cuda.on_stream(55):
        return mlbackends.scaled_dot_product_attention(
            q, k, v, mask, enable_gqa=True, scale=0.5, return_logsumexp=True, **options)
"""


def arguments(told: Told) -> list[list[int]]:
    """Return the words of each launch's arguments."""
    lines = told.lines("arguments ")
    return [[int(word, 16) for word in line.split()[1:-2]] for line in lines]


def structure(kind: Any, words: list[int]) -> Any:
    data = b"".join(word.to_bytes(8, "little") for word in words)
    return kind.from_buffer_copy(data.ljust(ctypes.sizeof(kind), b"\0"))


def test_a_copy_is_handed_addresses_sizes_and_steps(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.copies import packed
a = on_device(np.zeros((3, 4, 5), "f4"))
with mlbackends.cuda.on_stream(55):
    b = packed(a.permuted((2, 0, 1)).on(55))
tell([b.pointer, a.pointer])
""",
        FAKE_PARAMETERS=",".join(["8"] * 21),
    )
    assert told.lines("launch") == ["launch copy_4 grid=1,1,1 block=256,1,1 shared=0 stream 55 0"]
    ((to, of, total, *axes),) = arguments(told)
    assert ([to, of], total) == (told.values[0], 60)
    sizes, to_steps, of_steps = (axes[i : i + 6] for i in (0, 6, 12))
    # In bytes: the index of 5 runs slowest in the copy, fastest in what is copied.
    assert sizes == [1, 1, 1, 1, 5, 12]
    assert (to_steps[4:], of_steps[4:]) == ([48, 4], [4, 20])


def test_the_softmax_is_handed_rows_and_how_a_mask_lies(on_fake_cuda: OnFakeCuda) -> None:
    size = ctypes.sizeof(softmax._Call)
    told = on_fake_cuda(
        ATTENTION
        + """
out, logs = attend(SDPBackend.MATH)
tell([mask.pointer, logs.pointer, logs.stream])
""",
        FAKE_PARAMETERS=str(size),
    )
    (launch,) = told.lines("launch softmax")
    rows = 2 * 4 * 70
    assert launch == (
        f"launch softmax_float16 grid={rows * 32 // 256},1,1 block=256,1,1 shared=0 stream 55 0"
    )
    (words,) = arguments(told)
    call = structure(softmax._Call, words)
    assert [call.mask, call.logarithms, 55] == told.values[0]
    assert (call.rows, call.heads, call.length, call.keys) == (rows, 4, 70, 90)
    strides = call.mask_batch, call.mask_head, call.mask_row, call.mask_column
    assert strides == (0, 90, 0, 1)
    assert (call.scale, call.mask_kind, call.causal, call.shift) == (0.5, 2, 0, 0)


def test_attention_is_handed_every_tensor_s_address_and_strides(on_fake_cuda: OnFakeCuda) -> None:
    """The same the first time and the fourth, when the launch is prepared."""
    tile = tile_of("forward", "Float16", (32, 24), (9, 0))
    told = on_fake_cuda(
        ATTENTION
        + """
for _ in range(4):
    out, logs = attend(SDPBackend.EFFICIENT_ATTENTION)
    tell([each.pointer for each in (q, k, v, mask, out, logs)])
""",
        FAKE_PARAMETERS=str(ctypes.sizeof(Call)),
        FAKE_KERNELS="/nothing",
    )
    blocks = -(-70 // tile.rows) * 2 * 4
    sizes = f"grid={blocks},1,1 block={32 * tile.warps},1,1 shared={tile.shared_bytes('forward')}"
    assert told.lines("launch attention") == [f"launch attention_forward {sizes} stream 55 0"] * 4
    names = ("query", "key", "value", "mask", "out", "logsumexp")
    for words, addresses in zip(arguments(told), told.values, strict=True):
        call = structure(Call, words)
        assert [getattr(call, name).at for name in names] == addresses
        assert (call.query.batch, call.query.head, call.query.row) == (8960, 2240, 32)
        assert (call.key.group, call.value.row, call.mask.head, call.mask.row) == (2, 24, 90, 0)
        assert (call.rows, call.keys, call.head_dim, call.value_dim) == (70, 90, 32, 24)
        assert (call.scale, call.mask_kind) == (0.5, 2)


def test_attention_is_captured_in_a_graph(on_fake_cuda: OnFakeCuda) -> None:
    """A prepared call, too, does nothing on the host but allocate and launch in the graph."""
    told = on_fake_cuda(
        ATTENTION
        + """
from cuda.core import Device
from mlbackends_kernels.cuda import devices
attention = mlbackends.scaled_dot_product_attention
with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    for _ in range(3): attention(q, k, v, mask, enable_gqa=True)
    builder = Device(0).create_stream().create_graph_builder()
    builder.begin_building()
    with mlbackends.cuda.on_stream(builder.stream):
        devices.call("cuStreamSynchronize", 99)
        out = attention(q, k, v, mask, enable_gqa=True)
        devices.call("cuStreamSynchronize", 98)
    builder.end_building()
tell(int(builder.stream.handle))
""",
        FAKE_KERNELS="/nothing",
    )
    (stream,) = told.values
    first, last = (told.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    allocated, launched = told.log[first + 1 : last]
    assert allocated.startswith("cuMemAllocFromPoolAsync") and allocated.endswith(str(stream))
    assert launched.startswith("launch attention_forward") and f"stream {stream}" in launched


def test_attention_without_memory_is_an_error_and_goes_on_after_it(
    on_fake_cuda: OnFakeCuda,
) -> None:
    told = on_fake_cuda(
        ATTENTION
        + """
def both(): return attend(SDPBackend.EFFICIENT_ATTENTION)
for _ in range(3): both()
held = on_device(np.zeros(900000, bool))
kind, message = error_of(both)
tell([kind, message.startswith("cuda:0 has no 26.2 KiB left")])
del held
tell(list(both()[0].shape))
tell([mlbackends.cuda.memory_stats()["num_ooms"], mlbackends.cuda.memory_stats()["allocation.all.current"]])
""",
        FAKE_KERNELS="/nothing",
        FAKE_MEMORY="1000000",
    )
    assert told.values == [["CudaOutOfMemory", True], [2, 4, 70, 24], [1, 4]]
    assert told.lines("cuMemPoolTrimTo")
