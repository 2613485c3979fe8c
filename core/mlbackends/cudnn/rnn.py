"""cuDNN's recurrent layers: their precision, the numbers of their modes, and the state of their dropout."""

from typing import TYPE_CHECKING

from mlbackends.base.errors import suggestion
from mlbackends.switches import availability
from mlbackends.switches.modules import install

if TYPE_CHECKING:
    from typing import Any

_LAZY = {"ContextProp": "mlbackends.switches.modules:UnfrozenProp"}
#: cudnnRNNMode_t. Source: cudnn_adv.h.
_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}


def get_cudnn_mode(mode: str) -> int:
    """Return cuDNN's number of a kind of recurrent layer. Raises ValueError for another name."""
    if mode not in _MODES:
        raise ValueError(f"Unknown mode: {mode}{suggestion(str(mode), tuple(_MODES))}")
    return _MODES[mode]


class Unserializable:
    """Holds what must not be pickled: a copy that was pickled holds None."""

    def __init__(self, inner: "Any") -> None:
        self.inner = inner

    def get(self) -> "Any":
        """Return what is held."""
        return self.inner

    def __getstate__(self) -> str:
        return "<unserializable>"

    def __setstate__(self, state: object) -> None:
        self.inner = None


def init_dropout_state(
    dropout: float, train: bool, dropout_seed: int, dropout_state: "dict[str, Unserializable]"
) -> "Any":
    """Return the dropout state of the current device, making it at the first call; None without dropout.

    Raises AssertionError without a CUDA device, and NotImplementedError with one: the
    states live in cuDNN's own memory, for layers that this library does not have.
    """
    del dropout_seed
    if not availability.is_available("cuda_driver"):
        raise AssertionError("a dropout state needs a CUDA device, and this machine has none")
    state = dropout_state.get("desc_0")
    if state is None or state.get() is None:
        if train and dropout:
            raise NotImplementedError("mlbackends has no recurrent layers that would use this state")
        state = dropout_state["desc_0"] = Unserializable(None)
    return state.get()


install(__name__, "CudnnRNNModule")
