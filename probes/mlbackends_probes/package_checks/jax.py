"""Start what JAX's plugins are for, and multiply two matrices."""

from importlib.metadata import entry_points
from typing import Any

import jax

COMPUTES = True


def check(child: Any) -> None:
    points: Any = entry_points()
    if hasattr(points, "select"):
        plugins = points.select(group="jax_plugins")
    else:  # before Python 3.10
        plugins = points.get("jax_plugins", ())
    for plugin in plugins:
        for kind in ("cuda", "rocm", "tpu", "METAL", "xpu"):
            # A process that asks for a TPU has it alone: another would fail meanwhile.
            if kind.lower() in plugin.name.lower() and (child.deep or kind != "tpu"):
                child.starts(kind.lower(), lambda kind=kind: jax.devices(kind))
    if child.deep:
        got = (jax.numpy.ones((2, 2)) @ jax.numpy.ones((2, 2))).tolist()
        child.judge(got == [[2.0, 2.0], [2.0, 2.0]], f"a product of matrices gave {got}")
