"""Probes that are rows of table.json: `load` returns one with the attributes of a probe in a file.

These libraries and accelerators differ by names and by a few calls; any other probe is a file, NAME.py, and
`mlbackends.base.registry` lists both. doc: the lines of what would be the file's docstring. kind: "cuda",
"shared" and "accelerator" have the fields of CudaLibrary, SharedLibrary and Accelerator, "rocm" those of
library_finding, "package" and "packages" those of `_package` and `_packages_of` here. asks: which of
load_NAME and use_NAME in _checks.py or _processor_checks.py are asked of an opened library; what completes
a finding is in _findings.py, and of packages in _packages.py. unnamed: the name of a status that
statuses.json lacks.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

import msgspec

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import found, found_set, package
from mlbackends.libraries.amd import library_finding, rocm_calls
from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.cuda.libraries import CudaLibrary
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Finding, Library, nonempty
from mlbackends_probes import _accelerators, _findings, _packages
from mlbackends_probes._accelerators import Accelerator

_Check = Callable[[Calls, Library], Answer | None]

with open(os.path.join(os.path.dirname(__file__), "table.json"), "rb") as file:
    _ROWS = msgspec.json.decode(file.read(), type=dict[str, dict[str, Any]])


def load(name: str) -> ModuleType:
    """Return the probe of a row."""
    row: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value for field, value in _ROWS[name].items()
    }
    kind, unnamed, asks = row.pop("kind"), row.pop("unnamed", "unknown"), row.pop("asks", ())
    probe = ModuleType(f"{__package__}.{name}", "\n".join((*row.pop("doc"), "")))
    calls: Callable[[CDLL], Calls] = partial(Calls, library=name, unnamed=unnamed)
    attributes: dict[str, Any] = {}
    if kind == "package":
        attributes = {"GROUP": "framework", "find": partial(_package, name, **row)}
    elif kind == "packages":
        find = partial(_packages_of, name, **row)
        attributes = {"GROUP": "framework", "SUMMARY": ("{packages}",), "find": find}
    elif kind == "accelerator":
        describe = getattr(_accelerators, f"describe_{name}", None)
        accelerator = Accelerator(probe=name, **row, describe=describe)
        attributes = {"GROUP": "accelerator", "find": accelerator.find}
    elif kind == "rocm":
        calls = partial(rocm_calls, namer=row.pop("namer", ""))
        attributes["find"] = partial(library_finding, **row)
    elif kind == "cuda":
        if decode := getattr(_findings, f"decode_{name}", None):
            row["decode"] = decode
        cuda = CudaLibrary(name, **row)
        calls, attributes = cuda.calls, {"LIBRARY": cuda, "find": cuda.find}
        if cuda.property_function:
            attributes["load"] = cuda.load
    else:
        describe = getattr(_findings, f"describe_{name}", None)
        shared = SharedLibrary(row.pop("name", name), **row, describe=describe)
        attributes = {"LIBRARY": shared, "find": shared.find}

    def answer(step: str, opened: CDLL, library: Library) -> Answer:
        from mlbackends_probes import _checks, _processor_checks  # only where a library is opened

        function = f"{step}_{name}"
        check: _Check = getattr(_checks, function, None) or getattr(_processor_checks, function)
        return check(calls(opened), library) or Answer(library)

    attributes |= {step: partial(answer, step) for step in asks}
    if complete := getattr(_findings, f"find_{name}", None):
        find = attributes["find"]
        attributes["find"] = lambda host: complete(find(host), host)
    vars(probe).update(attributes, __file__=__file__)
    return probe


def _package(name: str, host: Host, **names: Any) -> Finding:
    """Find a package, with what _packages.py reads of it."""
    own = package(host, **names)
    read = getattr(_packages, f"facts_{name}", None) if own else None
    facts, warnings = read(host, own) if read else ({}, ())
    return found(host, own, name, nonempty(facts), warnings)


def _packages_of(name: str, host: Host, looked_for: str, any_of: Iterable[dict[str, Any]]) -> Finding:
    """Find several packages of which any may be installed, with what _packages.py reads of them."""
    own = [package(host, **names) for names in any_of]
    facts, warnings = getattr(_packages, f"facts_{name}")(host, own) if any(own) else ({}, ())
    return found_set(host, own, looked_for, name, nonempty(facts), warnings)
