from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.errors import NoBackend
from mlbackends.host.host import Host
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.dispatch import choose
from mlbackends_kernels import attention_cuda
from mlbackends_kernels.efficient_cuda import EfficientCuda

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


TAKEN = {
    "plain": problem(),
    "float16": problem(dtype="float16"),
    "float32": problem(dtype="float32"),
    "sm75": problem(capability="7.5"),
    "sm121": problem(capability="12.1"),
    "causal": problem(is_causal=True),
    "lower right": problem(key=(2, 8, 300, 64), is_causal=True, lower_right=True),
    "grouped heads": problem(key=(2, 2, 300, 64), value=(2, 4, 300, 64), enable_gqa=True),
    "mask of booleans": problem(mask=TensorSpec((100, 100), "bool")),
    "mask of float32": problem(mask=TensorSpec((2, 1, 1, 100), "float32")),
    "widths of 256": problem((1, 1, 10, 256)),
    "value of another width": problem(value=(2, 8, 100, 16)),
    "columns first": problem((1, 1, 10, 64), strides=(640, 640, 1, 10)),
    "logsumexp": problem(logsumexp=True),
    "gradients": problem(requires_grad=True, mask=TensorSpec((100, 100), "float32")),
    "gradient of a mask": problem(mask=TensorSpec((100, 1), "float32", requires_grad=True)),
    "no key": problem(key=(2, 8, 0, 64)),
    "broadcast batch": problem(key=(1, 8, 100, 64)),
}

REFUSED = {
    "wrong-device": problem(kind="cpu", capability=""),
    "wrong-capability": problem(capability="7.0"),
    "wrong-rank": problem((8, 100, 64)),
    "wrong-dtype": problem(dtype="float64"),
    "head-dim-too-large": problem((1, 1, 10, 257)),
    "dropout": problem(dropout=0.5),
    "inner-dtype": problem(inner_dtype="float64"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_takes(name: str) -> None:
    assert EfficientCuda().unsupported_reasons(TAKEN[name]) == ()


@pytest.mark.parametrize("code", REFUSED)
def test_it_refuses(code: str) -> None:
    reasons = EfficientCuda().unsupported_reasons(REFUSED[code])
    assert [reason.code for reason in reasons] == [code]
    with pytest.raises(NoBackend, match="efficient_cuda does not support this: "):
        EfficientCuda().run(REFUSED[code], None, None, None)


def test_what_is_missing_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    reasons = attention_cuda.missing_parts(Host(str(tmp_path)))
    assert [reason.code for reason in reasons] == ["missing-part"] * 3
    words = ("cuda.core", "libnvrtc.so", "libcuda.so.1")
    assert all(word in reason.message for word, reason in zip(words, reasons, strict=True))


def test_its_switch_takes_it_out_of_dispatch() -> None:
    import mlbackends

    def codes() -> list[str]:
        decision = choose(TAKEN["plain"], among=(EfficientCuda(),), here=False)
        return [reason.code for reason in decision.reasons]

    assert codes() == []
    before = mlbackends.cuda.mem_efficient_sdp_enabled()
    mlbackends.cuda.enable_mem_efficient_sdp(False)
    try:
        assert codes() == ["switched-off"]
    finally:
        mlbackends.cuda.enable_mem_efficient_sdp(before)
