"""cuDNN's attention over stubs of its frontend: the graphs that it gets, and its answers."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.dispatch import choose
from mlbackends_kernels import cudnn as backend
from mlbackends_kernels.cuda import attention_graph

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
    assert verdict(problem()) == ([], "cuDNN 9.1.2 supports it")
    assert verdict(problem(is_causal=True)) == ([], "cuDNN 9.1.2 supports it")
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
    (found,) = choose(problem(), among=[backend.Cudnn()]).verdicts
    assert [reason.code for reason in found.reasons] == ["missing-part"]


def test_the_graph_is_that_of_the_problem(frontend: Callable[[str], None]) -> None:
    frontend("pass")
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    mask = TensorSpec((64, 64), "float16", strides=(0, 1))
    graph = attention_graph.attention_graph(problem(mask=mask, scale=0.5))

    *tensors, (kind, options) = cudnn.calls[1:]
    assert cudnn.calls[0] == ("graph", 90)
    assert ("mask", [1, 1, 64, 64], [0, 0, 0, 1]) in tensors
    assert ("query", [2, 4, 64, 64], [16384, 4096, 64, 1]) in tensors
    assert kind == "sdpa"
    assert options["attn_scale"] == 0.5
    assert not {option for option in options if "causal" in option}
    assert set(graph.tensors) == {"query", "key", "value", "mask", "output", "logsumexp"}


@pytest.mark.parametrize(
    ("lower_right", "option"), [(False, "use_causal_mask"), (True, "use_causal_mask_bottom_right")]
)
def test_gradients_have_a_graph_of_their_own(
    frontend: Callable[[str], None], lower_right: bool, option: str
) -> None:
    frontend("pass")
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    wanted = problem(grad=True, is_causal=True, lower_right=lower_right)
    graph = attention_graph.attention_graph(wanted, backward=True)

    kind, options = cudnn.calls[-1]
    assert kind == "sdpa_backward"
    assert options[option] is True
    assert {"grad_query", "grad_key", "grad_value", "grad_out", "logsumexp"} <= set(graph.tensors)


def test_one_query_row_is_kept_from_it_where_a_gradient_is_required() -> None:
    for batch in (1, 4):
        row = TensorSpec((batch, 1, 1, 64), "float16", requires_grad=True)
        keys = TensorSpec((batch, 1, 128, 64), "float16", requires_grad=True)
        one = AttentionProblem(query=row, key=keys, value=keys, device=H100)
        codes = [reason.code for reason in backend.Cudnn().unsupported_reasons(one)]
        assert codes == ["length-unsupported"]
    assert backend.Cudnn().unsupported_reasons(problem(grad=True)) == ()


HERE = """
calls = []
def create_handle(): calls.append("handle"); return "handle"
def set_stream(handle, stream): calls.append(["stream", stream])
pygraph.get_workspace_size = lambda self: 100
pygraph.build_plans = lambda self: calls.append("plans")
def execute(self, tensors, workspace, handle):
    calls.append(sorted(tensor.made.get("name", "?") for tensor in tensors))
    for tensor, array in tensors.items():
        assert array.data_ptr() and list(array.shape[:3]) == [2, 4, 8]
        if "stride" in tensor.made:
            assert tensor.made["stride"] == [*array.strides, 1][:4]
    assert workspace.nbytes == 100
pygraph.execute = execute
"""


def test_a_plan_is_made_once_and_runs_on_the_callers_stream(on_fake_cuda: Any, tmp_path: Path) -> None:
    (tmp_path / "cudnn.py").write_text(FRONTEND.replace("{check}", "pass") + HERE)
    output = on_fake_cuda(f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import cudnn
from mlbackends_kernels.cuda.streams import on_stream
query, key, value = (on_device(rng.random((2, 4, 8, 16)).astype("f2")) for _ in range(3))
from mlbackends.sdpa import SDPBackend, scaled_dot_product_attention, sdpa_kernel
for _ in range(2):
    with on_stream(1), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = scaled_dot_product_attention(query, key, value)
report(list(out.shape))
report([each for each in cudnn.calls if isinstance(each, (str, list))])
""")
    shape, calls = output.values
    assert shape == [2, 4, 8, 16]
    assert calls.count("plans") == 1
    assert calls.count("handle") == 1
    assert calls.count(["?", "?", "key", "query", "value"]) == 2
    assert ["stream", 1] in calls


def test_a_graph_of_gradients_is_made_for_the_strides_of_its_inputs(
    on_fake_cuda: Any, tmp_path: Path
) -> None:
    (tmp_path / "cudnn.py").write_text(FRONTEND.replace("{check}", "pass") + HERE)
    output = on_fake_cuda(f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import cudnn
from mlbackends.sdpa import SDPBackend, sdpa_kernel
tensors = [on_device(rng.random((2, 4, 8, 16)).astype("f2")) for _ in range(3)]
coming = on_device(rng.random((2, 8, 4, 16)).astype("f2"))
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    found = mlbackends.scaled_dot_product_attention(*tensors, return_logsumexp=True)
    for each in (coming.viewed((2, 4, 8, 16), (512, 16, 64, 1)), coming.viewed((2, 4, 8, 16))):
        slopes = mlbackends.scaled_dot_product_attention_backward(each, *tensors, *found)
        report([type(slopes).__name__, *(list(each.shape) for each in slopes[:3])])
report([each for each in cudnn.calls if type(each) is list and "key" in each])
""")
    *shapes, runs = output.values
    assert shapes == 2 * [["Gradients", *3 * [[2, 4, 8, 16]]]]
    assert len(runs) == 3


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
    assert attention_graph.own_words(message) == words
