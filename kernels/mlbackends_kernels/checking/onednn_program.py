"""The fused attention of oneDNN's Graph API in a process of its own, for `sdpa check --peers`.

Any interpreter runs this file: it imports the standard library, and the files `serving`, `onednn_library` and
`onednn_operands` beside it by their paths.

    python onednn_program.py PATH_OF_LIBDNNL
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from math import prod, sqrt
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _beside(name: str) -> Any:
    """Import a file of this folder by its path."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(_HERE, f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


serving: Any = _beside("serving")
onednn: Any = _beside("onednn_library")
operands: Any = _beside("onednn_operands")

_HIDDEN_IS_ZERO = {"mode": "inf_as_zero"}
"""What SoftMax makes of a row that sees no key; oneDNN knows it since 3.8, and gives NaN before."""
_WARMING = ("float32", [1, 8, 8, 16])


class Attention:
    """Attention as a graph of oneDNN that is one partition, compiled.

    given: query, key, value and perhaps a mask of numbers, of equal rank. between: the type of the scores.
    Raises NotFused, or Failed of oneDNN.
    """

    def __init__(
        self, library: Any, given: dict[str, Any], scale: float, between: str, hidden: bool
    ) -> None:
        graph = onednn.Graph(library)
        self.graph = graph
        self.given = {**given, "scale": operands.dense("float32", [1], ctypes.c_float(scale))}
        tensors = {
            name: graph.tensor(each.element, each.shape, each.strides)
            for name, each in self.given.items()
        }
        query, value = given["query"], given["value"]
        rows, columns, width = query.shape[:-1], value.shape[-2], value.shape[-1]

        def scores(element: str = between) -> Any:
            return graph.tensor(element, [*rows, columns])

        found = graph.add("matmul", [tensors["query"], tensors["key"]], scores(), transpose_b=True)
        found = graph.add("multiply", [found, tensors["scale"]], scores())
        if "mask" in tensors:
            found = graph.add("add", [found, tensors["mask"]], scores())
        mode = _HIDDEN_IS_ZERO if hidden else {}
        found = graph.add("softmax", [found], scores(query.element), axis=-1, **mode)
        shape = [*rows, width]
        output = graph.tensor(query.element, shape, operands.dense_strides(shape))
        graph.add("matmul", [found, tensors["value"]], output)
        self.output_bytes = prod(shape) * operands.BYTES[query.element]
        rooms = {tensors[name].id: each.room for name, each in self.given.items()}
        graph.give([(each, rooms[each.id].address) for each in graph.compile(output)])

    def run(self) -> Any:
        """Compute once, into new memory."""
        room = operands.Room(self.output_bytes)
        self.graph.execute(room.address)
        return room


def fused(library: Any, given: dict[str, Any], scale: float) -> Attention:
    """Return attention in the first form that oneDNN fuses: scores of float32 if it can. Raises Refused."""
    own, masked = given["query"].element, "mask" in given
    reasons: list[str] = []
    for between in dict.fromkeys(("float32", own)):
        for hidden in (True, False) if masked else (False,):
            try:
                return Attention(library, given, scale, between, hidden)
            except onednn.NotFused as error:
                reasons.insert(0, f"{error}; it is fused where there is one")
            except onednn.Failed as error:
                reasons.append(f"{library.name} takes no such graph: {error}")
    raise serving.Refused(reasons[0])


class OneDnn(serving.Prepared):  # type: ignore[misc]
    """One problem, as `mlbackends.model.problem` writes it in JSON, for one copy of oneDNN."""

    def __init__(self, library: Any, problem: dict[str, Any], files: dict[str, str]) -> None:
        self.library = library
        given = {
            name: operands.read(files[name], problem[name]) for name in ("query", "key", "value")
        }
        query = given["query"]
        mask = operands.mask_of(problem, files)
        _refuse(library, problem, mask)
        if mask is not None:
            given["mask"] = mask
        groups = problem["key"]["shape"][1]
        if groups != query.shape[1]:
            given = {name: each.grouped(groups) for name, each in given.items()}
        scale = problem["scale"]
        self.attention = fused(
            library, given, 1 / sqrt(query.shape[-1]) if scale is None else scale
        )
        self.output_bytes = self.attention.output_bytes
        self.told = {
            "version": library.version,
            "runtime": library.runtime,
            "threads": library.threads,
            "partitions": "1",
            "kernel": self.attention.graph.kernel,
        }
        self.told = {name: word for name, word in self.told.items() if word}

    def warm(self) -> None:
        """Compute something small, which also starts the threads."""
        small = operands.dense(*_WARMING)
        fused(self.library, {"query": small, "key": small, "value": small}, 1.0).run()

    def call(self) -> Any:
        """Compute once."""
        return self.attention.run()

    def save(self, result: Any, path: str) -> None:
        """Write the elements row by row."""
        with open(path, "wb") as file:
            file.write(result.content)


def _refuse(library: Any, problem: dict[str, Any], mask: Any) -> None:
    """Raise Refused for what this release gets wrong: 3.6.2 was tried, and later sources were read."""
    query, value = problem["query"]["shape"], problem["value"]["shape"]
    if 0 in (*query, *value):
        raise serving.Refused(f"{library.name} takes no tensor with a dimension of 0")
    release = tuple(map(int, library.version.split(".")))
    if release < (3, 8) and query[-1] != value[-1]:
        said = "ends the process where the value is not as wide as the query; 3.8 is needed"
        raise serving.Refused(f"{library.name} {said}")
    if release < (3, 7) and mask is not None and mask.shape[:2] != [query[0], 1]:
        said = f"reads a mask of {mask.shape} as one of [{query[0]}, 1, ...]; 3.7 is needed"
        raise serving.Refused(f"{library.name} {said}")


def main(path: str) -> None:
    """Answer requests for one copy of oneDNN until standard input ends."""
    opened: list[Any] = []

    def prepare(request: dict[str, Any]) -> OneDnn:
        if not opened:
            opened.append(onednn.Library(path))
        return OneDnn(opened[0], request["problem"], request["files"])

    serving.serve(prepare)


if __name__ == "__main__":
    main(sys.argv[1])
