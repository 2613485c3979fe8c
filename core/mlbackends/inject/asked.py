"""The switches that the options of `backends run` ask for: files, and above them single settings."""

from collections.abc import Sequence

from mlbackends.model.errors import BadInput
from mlbackends.switches.files import read, settings
from mlbackends.switches.table import FLAGS


def asked(texts: Sequence[str], files: Sequence[str]) -> dict[str, object]:
    """Return the values of files, and of texts such as "cudnn.benchmark=true", which go before.

    Raises UnknownName, and BadInput with file, line and key; also where two files, or two texts, say
    different things of one switch.
    """
    found: dict[str, object] = {}
    said_by: dict[str, str] = {}
    for path in files:
        for name, value in read(path).items():
            if name in found and found[name] != value:
                raise BadInput(
                    f"{path} and {said_by[name]} set {name} to different values:"
                    f" {FLAGS[name].kind.written(value)} and {FLAGS[name].kind.written(found[name])}",
                    f"say which one with --set {name}=VALUE",
                )
            found[name] = value
            said_by.setdefault(name, path)
    return {**found, **settings(tuple(texts))}
