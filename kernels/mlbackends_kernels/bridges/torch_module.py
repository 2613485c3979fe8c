"""A lowered module as a child of a torch.nn.Module."""

from typing import Any

import torch


class LoweredTorchModule(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Lets torch.nn containers store, call and pickle what `mlbackends.jit` lowered.

    It has no parameters, so `to()` does not move those in the processed artefact.
    """

    __lowered_wrapper__ = True

    def __init__(self, lowered: Any) -> None:
        super().__init__()
        self.lowered = lowered

    @property
    def forward(self) -> Any:
        """The lowered `forward` itself, with its signature."""
        return self.lowered.forward

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "lowered":  # while it is copied
                raise
        return getattr(self.lowered, name)

    def extra_repr(self) -> str:
        """Return the text between the brackets: name and backend."""
        return str(self.lowered.qualified_name)


def as_torch_module(lowered: Any) -> torch.nn.Module:
    """Return a torch.nn.Module that runs a lowered module, itself if it is one."""
    return lowered if isinstance(lowered, torch.nn.Module) else LoweredTorchModule(lowered)
