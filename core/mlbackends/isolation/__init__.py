"""Child processes in which foreign code runs: one protocol, one worker, one client."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

#: Whether nothing but our command runs in this process, so that its attributes are ours to change.
process_is_ours = False


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, at the start of a process that is ours.

    The standard library has all that msgspec takes from there. Importing it takes a fifth of a child's start,
    and a fortieth of `backends info --depth found`.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    if "msgspec" not in modules and "typing_extensions" not in modules:
        modules["typing_extensions"] = None
        try:
            import msgspec  # noqa: F401
        finally:
            del modules["typing_extensions"]
