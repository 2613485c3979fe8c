"""What cudnn and cudnn.rnn make of what the probe says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends import cudnn
from mlbackends.cudnn import rnn
from mlbackends.model.records import Presence, ProbeReport

if TYPE_CHECKING:
    from collections.abc import Callable

    Reported = Callable[..., None]


pytestmark = pytest.mark.usefixtures("fresh_switches")


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("9.10.2", 91002),
        ("9.0.0", 90000),
        ("8.9.7", 8907),
        ("7.6.5", 7605),
        ("10.1.0", 100100),
        ("9.10.2.21", 91002),
        ("", None),
        ("9.10", None),
        ("9.x.2", None),
    ],
)
def test_the_version_is_cudnns_own_number(said: str, number: int | None, reported: Reported) -> None:
    reported(cudnn=ProbeReport(presence=Presence.LOADABLE, version=said))

    assert cudnn.version() == number


def tensor(device: object, dtype: str = "float32") -> Any:
    return SimpleNamespace(device=device, dtype=f"torch.{dtype}")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("device", ["cuda:0", "cuda", SimpleNamespace(type="cuda"), "cpu", "mps:0"])
def test_a_tensor_is_acceptable_on_a_gpu_in_three_types(
    device: object, dtype: str, reported: Reported
) -> None:
    reported(cudnn=ProbeReport(presence=Presence.LOADABLE))
    on_gpu = "cuda" in str(device)

    fits = cudnn.is_acceptable(tensor(device, dtype))

    assert fits is (on_gpu and dtype in ("float16", "float32", "float64"))


def test_a_missing_cudnn_is_warned_of_for_a_tensor_on_a_gpu(reported: Reported) -> None:
    reported()

    with pytest.warns(UserWarning, match="cuDNN was not found") as caught:
        assert cudnn.is_acceptable(tensor("cuda:0")) is False
    assert caught[0].filename == __file__
    assert cudnn.is_acceptable(tensor("cpu")) is False


@pytest.mark.parametrize(("found", "limit"), [(True, 10), (False, None)])
def test_the_limit_of_the_benchmark_is_ten_where_cudnn_is(
    found: bool, limit: int | None, reported: Reported
) -> None:
    reported(cudnn=ProbeReport(presence=Presence.FOUND if found else Presence.ABSENT))

    assert cudnn.benchmark_limit == limit
    with cudnn.flags(enabled=True, benchmark_limit=3):
        assert cudnn.benchmark_limit == (3 if found else None)
    assert cudnn.benchmark_limit == limit


def test_a_dropout_state_is_made_once_and_without_dropout_is_none(reported: Reported) -> None:
    reported(cuda_driver=ProbeReport(presence=Presence.USABLE))
    states: dict[str, rnn.Unserializable] = {}

    assert rnn.init_dropout_state(0.0, True, 0, states) is None
    assert list(states) == ["desc_0"]
    with pytest.raises(NotImplementedError, match="no recurrent layers"):
        rnn.init_dropout_state(0.5, True, 0, states)
    kept = {"desc_0": rnn.Unserializable("state")}
    assert rnn.init_dropout_state(0.5, True, 0, kept) == "state"
