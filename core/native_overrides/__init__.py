"""Kernels that take the place of an operation's native one: which there are, and which are used.

Everything here is the process's: what one thread switches off is off for all. `call` runs an
operation; `mlbackends.python_native` is what a user switches with. The attention dispatcher asks
`filters.why_disabled`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlbackends.native_overrides.calls import call

__all__ = ["call"]


def __getattr__(name: str) -> object:
    if name == "call":  # at its first use: who only reads a switch needs none of what a call does
        from mlbackends.native_overrides.calls import call

        globals()["call"] = call
        return call
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
