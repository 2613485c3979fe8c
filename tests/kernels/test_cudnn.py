"""cuDNN's attention over stubs of its frontend: the graphs that it gets, and its answers."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.dispatch import backends, choose, no_backend
from mlbackends_kernels import cudnn as backend
from mlbackends_kernels.checking import cudnn_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

H100 = Device("cuda", 0, capability="9.0")


def problem(*, rows: int = 64, grad: bool = False, **more: object) -> AttentionProblem:
    spec = TensorSpec((2, 4, rows, 64), "float16", requires_grad=grad)
    made = AttentionProblem(query=spec, key=spec, value=spec, device=H100)
    return replace(made, **more) if more else made


FRONTEND = """
import json, sys
class cudnnGraphNotSupportedError(RuntimeError): pass
class data_type: HALF, BFLOAT16, FLOAT = "half", "bfloat16", "float"
class heur_mode: A = "a"
def backend_version_string(): return "9.1.2"
create_device_properties = json.loads
calls = []
class Tensor:
    def __init__(self, **made): self.made = made
    def __getattr__(self, name): return lambda value: self
class pygraph:
    def __init__(self, **made): calls.append(("graph", made.get("sm_version", 0)))
    def tensor(self, **made): calls.append((made["name"], made["dim"], made["stride"])); return Tensor(**made)
    def sdpa(self, **options): calls.append(("sdpa", options)); return Tensor(), Tensor()
    def sdpa_backward(self, **options): calls.append(("sdpa_backward", options)); return [Tensor()] * 3
    def validate(self): pass
    def build_operation_graph(self): pass
    def create_execution_plans(self, modes): pass
    def check_support(self): {check}
"""


@pytest.fixture
def frontend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Give what puts a stand-in for the frontend in front of a real one, by what its check does."""

    def made(check: str) -> None:
        (tmp_path / "cudnn.py").write_text(FRONTEND.replace("{check}", check))

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(backend, "_processes", [])
    monkeypatch.delitem(__import__("sys").modules, "cudnn", raising=False)
    backend._answer.cache_clear()
    yield made
    for service, _ in backend._processes:
        service.stop()
    backend._answer.cache_clear()
    __import__("sys").modules.pop("cudnn", None)


def verdict(of: AttentionProblem) -> tuple[list[str], str]:
    (found,) = choose(of, among=[backend.Cudnn()], here=False).verdicts
    return [reason.message for reason in found.reasons], found.note


def test_a_problem_that_it_takes_is_taken_in_its_name(frontend: Callable[[str], None]) -> None:
    frontend("print('noise of a library')")
    assert verdict(problem()) == ([], "cuDNN 9.1.2 supports it; it is asked, and not run")
    assert verdict(problem(is_causal=True)) == ([], "cuDNN 9.1.2 supports it; it is asked, and not run")
    assert len(backend._processes) == 1


def test_gradients_that_a_cudnn_gets_wrong_are_refused(frontend: Callable[[str], None]) -> None:
    frontend("pass")
    (message,), _ = verdict(problem(grad=True))
    assert (
        message.startswith("can be wrong here: NaN in the gradient of the query")
        and "pytorch#196678" in message
    )
    assert verdict(problem(grad=True, is_causal=True))[0] == []
    assert verdict(problem(grad=True, rows=128))[0] == []


def test_it_is_asked_and_never_chosen(frontend: Callable[[str], None]) -> None:
    frontend("pass")
    for here in (True, False):
        decision = choose(problem(), among=[backend.Cudnn()], here=here)
        assert [verdict.usable for verdict in decision.verdicts] == [True]
        assert decision.chosen == ""
    assert "cudnn" not in [found.name for found in backends()]
    with pytest.raises(NoBackend, match=r"cudnn: cuDNN 9\.1\.2 supports it; it is asked, and not run"):
        raise no_backend(decision)


def test_a_refusal_is_in_its_own_words(frontend: Callable[[str], None]) -> None:
    frontend("raise cudnnGraphNotSupportedError('too wide for me')")
    assert verdict(problem()) == (["too wide for me"], "")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("__import__('os').abort()", "was killed by SIGABRT"),
        ("raise RuntimeError('no sublibrary')", "RuntimeError: no sublibrary"),
        ("sys.exit(3)", "ended with exit code 3"),
    ],
)
def test_a_process_that_fails_refuses_nothing(
    frontend: Callable[[str], None], check: str, words: str
) -> None:
    frontend(check)
    reasons, note = verdict(problem())
    assert reasons == []
    assert note.startswith("cuDNN could not be asked: ")
    assert words in note


def test_without_the_frontend_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert verdict(problem()) == (
        [],
        "only cuDNN can tell whether it supports this, and it was not asked",
    )
    (found,) = choose(problem(), among=[backend.Cudnn()], here=False).verdicts
    assert found.undecided and not found.usable
    assert [reason.message for reason in found.missing] == ["nvidia-cudnn-frontend is not installed"]


def test_the_graph_is_that_of_the_problem(frontend: Callable[[str], None]) -> None:
    frontend("pass")
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    mask = TensorSpec((64, 64), "float16", strides=(0, 1))
    cudnn_graph.check(problem(mask=mask, scale=0.5))

    *tensors, (kind, options) = cudnn.calls[1:]
    assert cudnn.calls[0] == ("graph", 90)
    assert ("mask", [1, 1, 64, 64], [0, 0, 0, 1]) in tensors
    assert ("query", [2, 4, 64, 64], [16384, 4096, 64, 1]) in tensors
    assert kind == "sdpa"
    assert options["attn_scale"] == 0.5
    assert not {option for option in options if "causal" in option}


@pytest.mark.parametrize(
    ("lower_right", "option"), [(False, "use_causal_mask"), (True, "use_causal_mask_bottom_right")]
)
def test_gradients_have_a_graph_of_their_own(
    frontend: Callable[[str], None], lower_right: bool, option: str
) -> None:
    frontend("pass")
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    wanted = problem(grad=True, is_causal=True, lower_right=lower_right)
    cudnn_graph.check(wanted, backward=True)

    kind, options = cudnn.calls[-1]
    assert kind == "sdpa_backward"
    assert options[option] is True
    named = {call[0] for call in cudnn.calls if len(call) == 3}
    assert named == {"query", "key", "value", "output", "grad_out", "logsumexp"}


def test_one_query_row_is_kept_from_it_where_a_gradient_is_required() -> None:
    for batch in (1, 4):
        row = TensorSpec((batch, 1, 1, 64), "float16", requires_grad=True)
        keys = TensorSpec((batch, 1, 128, 64), "float16", requires_grad=True)
        one = AttentionProblem(query=row, key=keys, value=keys, device=H100)
        codes = [reason.code for reason in backend.Cudnn().unsupported_reasons(one)]
        assert codes == ["length-unsupported"]
    assert backend.Cudnn().unsupported_reasons(problem(grad=True)) == ()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("hidden_dim should be multiple of 8", "hidden_dim should be multiple of 8"),
        (("no engine — python or backend — proposed a plan for this graph (the backend declined: "
         "SDPA FP16/BF16 requires SM80 (Ampere) or newer architecture; python engines declined: "
         "sdpa_fwd_prefill_sm100: requires SM100-106; current device is None)"),
         "SDPA FP16/BF16 requires SM80 (Ampere) or newer architecture"),
        (
            textwrap.dedent("""\
                no engine (the backend declined: No valid engine configs for
                {"engineId":9}
                Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: Seq Length Q must be > 0 at: s_q <= 0
                Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: generate_attention_desc()
                ; python engines declined: sdpa: B/H/S/D must all be > 0)"""),
            "Seq Length Q must be > 0",
        ),
    ],
)  # fmt: skip
def test_of_a_long_message_its_reason_is_kept(message: str, words: str) -> None:
    assert cudnn_graph.own_words(message) == words
