from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.errors import NoBackend
from mlbackends.host.host import Host
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.dispatch import choose
from mlbackends_kernels.attention_cuda import requirements
from mlbackends_kernels.attention_flash import cubins
from mlbackends_kernels.attention_flash.chips import CUDA
from mlbackends_kernels.flash_cuda import FlashCuda

if TYPE_CHECKING:
    from pathlib import Path


def problem(
    shape: tuple[int, ...] = (2, 8, 100, 64),
    dtype: str = "bfloat16",
    key: tuple[int, ...] | None = None,
    value: tuple[int, ...] | None = None,
    capability: str = "9.0",
    kind: str = "cuda",
    strides: tuple[int, ...] = (),
    requires_grad: bool = False,
    **more: Any,
) -> AttentionProblem:
    return AttentionProblem(
        query=TensorSpec(shape, dtype, strides, requires_grad=requires_grad),
        key=TensorSpec(key or shape, dtype),
        value=TensorSpec(value or key or shape, dtype),
        device=Device(kind, 0, capability=capability),
        **more,
    )


PACKED: dict[str, Any] = {
    "shape": (1, 8, 100, 64),
    "query_lengths": (30, 70),
    "key_lengths": (1, 99),
}
PAGED: dict[str, Any] = {
    "shape": (2, 8, 1, 64),
    "key": (9, 8, 16, 64),
    "key_lengths": (30, 70),
    "page_table": TensorSpec((2, 5), "int32"),
}
TAKEN = {
    "plain": problem(),
    "float16": problem(dtype="float16"),
    "sm80": problem(capability="8.0"),
    "sm87, which runs code of sm86": problem(capability="8.7"),
    "sm121": problem(capability="12.1"),
    "causal": problem(is_causal=True),
    "lower right": problem(key=(2, 8, 300, 64), is_causal=True, lower_right=True),
    "window": problem(window=(100, 0)),
    "softcap": problem(softcap=30.0),
    "sinks": problem(sinks=TensorSpec((8,), "float32")),
    "grouped heads": problem(key=(2, 2, 300, 64), value=(2, 4, 300, 64), enable_gqa=True),
    "widths of 256": problem((1, 1, 10, 256)),
    "value of another width": problem(value=(2, 8, 100, 16)),
    "columns first": problem((1, 1, 10, 64), strides=(640, 640, 1, 10)),
    "logsumexp": problem(logsumexp=True),
    "gradients": problem(requires_grad=True, softcap=1.0, window=(5, 5)),
    "no key": problem(key=(2, 8, 0, 64)),
    "broadcast batch": problem(key=(1, 8, 100, 64)),
    "sequences": problem(**PACKED),
    "pages": problem(**PAGED),
}

REFUSED = {
    "wrong-device": [problem(kind="cpu", capability="")],
    "wrong-capability": [problem(capability=each) for each in ("7.5", "11.0", "13.0", "")],
    "wrong-rank": [problem((8, 100, 64))],
    "wrong-dtype": [problem(dtype="float32")],
    "head-dim-too-large": [problem((1, 1, 10, 257)), problem(value=(2, 8, 100, 320))],
    "dropout": [problem(dropout=0.5)],
    "mask": [problem(mask=TensorSpec((100, 100), "bool"))],
    "inner-dtype": [problem(inner_dtype="float64")],
    "gradient": [
        problem(**PACKED, requires_grad=True),
        problem(**PAGED, requires_grad=True),
        problem(key=(2, 2, 9, 64), value=(2, 4, 9, 64), enable_gqa=True, requires_grad=True),
    ],
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_takes(name: str) -> None:
    assert FlashCuda().unsupported_reasons(TAKEN[name]) == ()


@pytest.mark.parametrize("code", REFUSED)
def test_it_refuses(code: str) -> None:
    for each in REFUSED[code]:
        assert [reason.code for reason in FlashCuda().unsupported_reasons(each)] == [code]
    with pytest.raises(NoBackend, match="flash_cuda cannot do this: "):
        FlashCuda().run(REFUSED[code][0], None, None, None)


def test_a_chip_of_no_generation_is_told_which_there_are() -> None:
    (reason,) = FlashCuda().unsupported_reasons(problem(capability="11.0"))
    chips = "sm80, sm86, sm89, sm90, sm100, sm103, sm120"
    assert reason.message == f"the device is sm110; it needs code of {chips}"


def test_it_needs_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    reasons = requirements.missing_parts(Host(str(tmp_path)), libraries=())
    words = ("cuda.core", "libcuda.so.1")
    assert all(word in each.message for word, each in zip(words, reasons, strict=True))
    monkeypatch.setattr(requirements, "missing_parts", lambda **_: reasons)
    with pytest.raises(NoBackend, match=r"cannot run here: it launches by cuda\.core"):
        FlashCuda().run(TAKEN["plain"], None, None, None)


@pytest.mark.parametrize("release", ["570.124.06", "580.65.06", ""])
def test_its_machine_code_needs_a_driver_of_its_cuda(
    release: str, tmp_path: Path, fake_library: Any
) -> None:
    """As on a cluster whose driver is of CUDA 12, with cuda-bindings for it."""
    assert json.loads(cubins.RECORDS.read_text(encoding="utf-8"))["nvrtc"] == CUDA
    at = tmp_path / "root/usr/local/nvidia/lib64" / f"libcuda.so.{release or 1}"
    at.parent.mkdir(parents=True)
    at.write_bytes(fake_library("computing_driver", "libcuda.so.1").read_bytes())
    (tmp_path / "host.json").write_text('{"environment": {}}', encoding="utf-8")
    missing = requirements.missing_parts(Host(str(tmp_path)), libraries=(), built_for=CUDA)
    text = (
        f"its machine code is of CUDA 13.5, which needs driver 580 or newer; this one is {release}"
    )
    told = [each.message for each in missing if "driver" in each.message]
    assert told == ([text] if release.startswith("570") else [])


def test_it_comes_before_the_others_on_a_described_gpu() -> None:
    decision = choose(TAKEN["plain"], here=False)
    assert decision.chosen == "flash_cuda"
    assert choose(problem(dtype="float32"), here=False).chosen == "efficient_cuda"


def test_its_switch_takes_it_out_of_dispatch() -> None:
    import mlbackends

    def codes() -> list[str]:
        decision = choose(TAKEN["plain"], among=(FlashCuda(),), here=False)
        return [reason.code for reason in decision.reasons]

    assert codes() == []
    before = mlbackends.cuda.flash_sdp_enabled()
    mlbackends.cuda.enable_flash_sdp(False)
    try:
        assert codes() == ["switched-off"]
    finally:
        mlbackends.cuda.enable_flash_sdp(before)


def test_importing_it_imports_neither_cuda_nor_numpy() -> None:
    program = (
        "import sys; from mlbackends.base import registry\n"
        "registry.load('mlbackends_kernels', 'flash_cuda').FlashCuda().missing_parts()\n"
        "print(sorted(name for name in sys.modules if name in ('cuda', 'numpy', 'torch', 'lzma')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
