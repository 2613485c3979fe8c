"""The whole way through the library to a driver: what is launched where, and what comes back.

The driver is tests/fakelibs/computing_driver.c, which has attention.cu run on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlbackends_kernels.attention_cuda.launches import tile_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernels.attention_cuda.conftest import HostKernels
    from tests.kernels.conftest import OnFakeCuda

PROGRAM = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels.attention_cuda import requirements
requirements.missing_parts = lambda: ()
def array(*shape): return rng.standard_normal(shape).astype(np.float16)
shapes = (2, 4, 70, 32), (2, 2, 70, 32), (2, 2, 70, 32), (2, 4, 70, 32)
q, k, v, coming = [array(*shape) for shape in shapes]
arrays = [on_device(each) for each in (q, k, v)]
options = dict(is_causal=True, enable_gqa=True)
forward = mlbackends.scaled_dot_product_attention
backward = mlbackends.scaled_dot_product_attention_backward
with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    out, sums = forward(*arrays, return_logsumexp=True, **options)
    found = backward(on_device(coming), *arrays, out, sums, **options)
with mlbackends.sdpa_kernel(SDPBackend.MATH):
    right, logarithms = forward(q, k, v, return_logsumexp=True, **options)
    gradients = backward(coming, q, k, v, right, logarithms, **options)
pairs = [(out, right), (sums, logarithms), *zip(found[:3], gradients[:3])]
tell([type(each).__name__ for each, _ in pairs])
tell(max(float(abs(each.numpy() - other).max()) for each, other in pairs))
"""


def test_attention_and_its_gradients_come_back_from_a_driver(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels, tmp_path: Path
) -> None:
    passes = ("forward", "summarize", "differentiate_query", "differentiate_both")
    tiles = {each: tile_of(each, "Float16", (32, 32), (9, 0)) for each in passes}
    variables = {"FAKE_CAPABILITY": "90", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    kernels = str(host_kernels.of_the_driver(tiles))
    told = on_fake_cuda(PROGRAM, FAKE_KERNELS=kernels, **variables)

    kinds: Any
    kinds, worst = told.values
    assert set(kinds) == {"DeviceArray"} and worst < 5e-3
    grids = {"forward": 8, "summarize": 140, "differentiate_query": 16, "differentiate_both": 8}
    assert told.lines("launch attention") == [
        f"launch attention_{each} grid={grids[each]},1,1 block=128,1,1"
        f" shared={tiles[each].shared_bytes(each)} stream 1 0"
        for each in passes
    ]
    assert len(list((tmp_path / "cache" / "mlbackends" / "kernels").iterdir())) == len(passes)


def test_more_shared_memory_than_usual_is_asked_for_once(
    on_fake_cuda: OnFakeCuda, tmp_path: Path
) -> None:
    program = PROGRAM.partition("with ")[0].replace("32)", "128)") + (
        "for _ in range(2):\n"
        "    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "        forward(*arrays, **options)\n"
    )
    variables = {"FAKE_CAPABILITY": "90", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    told = on_fake_cuda(program, FAKE_KERNELS="/nothing", **variables)
    tile = tile_of("forward", "Float16", (128, 128), (9, 0))
    assert told.lines("cuKernelSetAttribute") == [
        f"cuKernelSetAttribute 8 {tile.shared_bytes('forward')}"
    ]
    assert len(told.lines("launch attention_forward")) == 2
