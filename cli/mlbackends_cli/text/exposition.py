"""The text that Prometheus reads: families of series, each with labels and a value."""

import os
from collections.abc import Mapping

from mlbackends.base.tables import table

Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(families: Mapping[str, Mapping[Labels, float]], run: Labels = ()) -> str:
    """Return families as text, with the help of each in exposition.json. run: labels of every series."""
    lines, meanings = [], table(os.path.join(os.path.dirname(__file__), "exposition"))
    for name, series in families.items():
        if series:
            lines += [f"# HELP {name} {meanings[name]}", f"# TYPE {name} gauge"]
        for own, value in series.items():
            pairs = (f'{key}="{text.translate(_ESCAPES)}"' for key, text in (*run, *own))
            lines.append(f"{name}{{{','.join(pairs)}}} {value:.15g}")
    return "\n".join([*lines, ""])
