"""What a backend must offer to run lowered modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class BackendInterface(ABC):
    """A compiler and a runtime for the methods of a lowered module.

    One instance is made for each module that is lowered, loaded or copied deeply. What an
    implementation raises reaches the caller as it is; `DelegateError` adds the place in the source.
    """

    @abstractmethod
    def is_available(self) -> bool:
        """Tell whether this backend can compile and execute in this process, now.

        Asked twice when a module is lowered, once when one is loaded, and before every call.
        """

    @abstractmethod
    def compile(self, processed: Any, method_compile_spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make what `execute` needs, and return one handle for each method of the spec.

        processed: what the preprocess function returned. Called once after lowering and once after
        each load; a handle is never saved.
        """

    @abstractmethod
    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        """Run one method and return the list of its outputs.

        inputs: every argument of the original method without `self`, in the order of its
        signature, defaults filled in. A method that returns a tuple has one output for each item;
        any other has exactly one.
        """
