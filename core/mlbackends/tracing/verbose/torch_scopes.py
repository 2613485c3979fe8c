"""The level that a scope of torch's own has set: oneDNN tells nobody, but the scope is there to be found.

`with torch.backends.mkldnn.verbose(1):` keeps its object's bound `__exit__` until it ends, up to Python
3.13 at least, and so does an ExitStack. One that is only made, or has ended, is kept by no such method.
"""

import sys


class _Bound:
    def method(self) -> None: ...


_METHOD = type(_Bound().method)


def entered_level() -> int | None:
    """Return the level of torch's scopes that were entered and have not ended.

    None where there are none, or they do not agree: which of them is the inner one cannot be told.
    """
    scope = getattr(sys.modules.get("torch.backends.mkldnn"), "verbose", None)
    if not isinstance(scope, type):
        return None
    import gc

    leave = scope.__dict__.get("__exit__")
    levels = set()
    for each in gc.get_referrers(scope):
        if type(each) is scope and any(
            isinstance(holder, _METHOD) and getattr(holder, "__func__", None) is leave
            for holder in gc.get_referrers(each)
        ):
            levels.add(getattr(each, "level", None))
    levels.discard(0)  # torch's sets nothing then
    level = levels.pop() if len(levels) == 1 else None
    return level if isinstance(level, int) and 0 <= level <= 2 else None
