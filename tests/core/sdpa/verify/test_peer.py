"""Which peers take a problem's device, what is missing for them, and whose Python runs them."""

from __future__ import annotations

import pytest

from mlbackends.base.errors import UnknownName
from mlbackends.model.records import Device, Presence, ProbeReport
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify import peer as module
from mlbackends.sdpa.verify.peer import peers
from mlbackends.sdpa.verify.processes import Plan

BY_NAME = {peer.name: peer for peer in peers()}
ON_CUDA = {
    *("flash_attn_2", "flash_attn_3", "flash_attn_4", "flashinfer", "jax", "torch_cudnn"),
    *("torch_efficient", "torch_flash", "torch_flex", "torch_math", "xformers"),
}


def test_each_kind_of_device_has_its_peers() -> None:
    (wording,) = parse("--shape 1,4,64,64 --dtype float16")
    for place, expected in (
        (Device("cpu", 0), {"onnxruntime", "openvino", "torch_flash", "torch_math"}),
        (Device("cuda", 0, capability="9.0"), ON_CUDA),
    ):
        problem = wording.problem(place)
        assert {name for name, peer in BY_NAME.items() if peer.takes_device(problem)} == expected
        assert not [name for name in expected if BY_NAME[name].unsupported_reasons(problem)]


@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        ("--dtype float32", "flash_attn_4", "dtype is float32"),
        ("--kv-len 70 --causal", "flash_attn_2", "top-left alignment of the causal mask"),
        ("--mask bool", "xformers", "boolean masks are not supported"),
        ("--backward", "flashinfer", "gradients are not supported"),
        ("--kv-len 70 --mask lower-right", "jax", "bottom-right alignment of the causal mask"),
    ],
)
def test_a_peer_refuses_what_it_would_compute_otherwise(words: str, name: str, said: str) -> None:
    more = "" if "--dtype" in words else "--dtype float16 "
    (wording,) = parse(f"--shape 1,4,64,64 {more}{words}")
    reasons = BY_NAME[name].unsupported_reasons(wording.problem(Device("cuda", 0, capability="9.0")))
    assert any(said in reason.message for reason in reasons), reasons


def test_of_several_packages_the_one_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = ProbeReport(presence=Presence.FOUND, facts={"packages": {"flash-attn": "2.8.3"}})
    monkeypatch.setattr(module, "_report", lambda *_: report)

    assert BY_NAME["flash_attn_2"].why_missing() == ()
    (reason,) = BY_NAME["flash_attn_4"].why_missing()
    assert reason.message.startswith("no flash-attn-4 in the import path of ")
    assert reason.hint.startswith("pip install --pre flash-attn-4, or name an environment")


def test_each_peer_may_have_an_environment_of_its_own() -> None:
    plan = Plan(pythons=("/usr/bin/python3", "jax=venv/bin/python"))

    assert plan.python_of("jax") == "venv/bin/python"
    assert plan.python_of("xformers") == "/usr/bin/python3"
    assert Plan(pythons=("/a=b/python",)).python_of("jax") == "/a=b/python"
    assert Plan().python_of("jax") == ""
    with pytest.raises(UnknownName, match="jaxx"):
        Plan(pythons=("jaxx=python",)).python_of("jax")
