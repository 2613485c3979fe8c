"""The fused attention of oneDNN's Graph API in a process of its own, for `sdpa check --peers`.

Any interpreter runs this file: it imports the standard library, and the files `serving` and `onednn_library`
beside it by their paths.

    python onednn_program.py PATH_OF_LIBDNNL
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from math import prod, sqrt
from types import SimpleNamespace
from typing import Any, NamedTuple

_FOLDER = os.path.dirname(os.path.abspath(__file__))
serving: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "serving.py")))
onednn: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "onednn_library.py")))

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_MINUS_INFINITY = {"float32": b"\0\0\x80\xff", "bfloat16": b"\x80\xff", "float16": b"\0\xfc"}
_ALIGNMENT = 64
#: What SoftMax makes of a row that sees no key; oneDNN knows it since 3.8, and gives NaN before.
_HIDDEN_IS_ZERO = {"mode": "inf_as_zero"}
_WARMING = ("float32", [1, 8, 8, 16])


class Room:
    """Memory of the C library, aligned as other libraries have it, given back with the object."""

    _is_windows = sys.platform == "win32"
    _c = ctypes.CDLL("ucrtbase" if _is_windows else None)
    _free = _c["_aligned_free" if _is_windows else "free"]

    def __init__(self, size: int) -> None:
        self.size, self.address = size, ctypes.c_void_p()
        request = ctypes.c_size_t(max(size, 1)), ctypes.c_size_t(_ALIGNMENT)
        if self._is_windows:
            allocate = self._c["_aligned_malloc"]
            allocate.restype = ctypes.c_void_p
            self.address.value = allocate(*request)
        else:
            self._c.posix_memalign(ctypes.byref(self.address), request[1], request[0])
        if not self.address.value:
            raise MemoryError(f"no {size} bytes are free")

    @property
    def content(self) -> memoryview:
        """Its bytes, as long as the room is there."""
        memory = (ctypes.c_char * self.size).from_address(self.address.value or 0)
        return memoryview(memory).cast("B")

    def __del__(self) -> None:
        self._free(self.address)


class Operand(NamedTuple):
    """A tensor in memory. element: its type. strides: in elements."""

    element: str
    shape: list[int]
    strides: list[int]
    room: Room

    def grouped(self, groups: int) -> Operand:
        """Return it with its heads as two dimensions, of which the first has so many, or one."""
        batch, heads, *rows = self.shape
        over_batch, over_heads, *within = self.strides
        first = min(groups, heads)
        each = heads // first
        strides = [over_batch, over_heads * each, over_heads, *within]
        return self._replace(shape=[batch, first, each, *rows], strides=strides)


def dense_strides(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    return [prod(shape[at + 1 :]) for at in range(len(shape))]


def dense(element: str, shape: list[int], content: Any = None) -> Operand:
    """Return a contiguous tensor, of zeros where no content is given."""
    room = Room(prod(shape) * BYTES[element])
    room.content[:] = bytes(room.size) if content is None else bytes(content)
    return Operand(element, shape, dense_strides(shape), room)


def read(path: str, spec: dict[str, Any]) -> Operand:
    """Return the tensor of a file, lying in memory as the record says."""
    room = Room(os.path.getsize(path))
    with open(path, "rb") as file:
        file.readinto(room.content)
    return Operand(spec["dtype"], list(spec["shape"]), list(spec["strides"]), room)


def mask_of(problem: dict[str, Any], files: dict[str, str]) -> Operand | None:
    """Return a problem's mask as numbers to add to the scores, of four dimensions; None without one.

    What a mask of bits or a causal one hides is -inf, in the type of the query.
    """
    query, key, mask = problem["query"], problem["key"], problem["mask"]
    element = query["dtype"]
    hidden, width = _MINUS_INFINITY[element], BYTES[element]
    if problem["is_causal"]:
        rows, columns = query["shape"][-2], key["shape"][-2]
        first = 1 + (columns - rows if problem["lower_right"] else 0)
        visible = [min(max(first + row, 0), columns) for row in range(rows)]
        lines = [bytes(width * each) + hidden * (columns - each) for each in visible]
        return dense(element, [1, 1, rows, columns], b"".join(lines))
    if not mask:
        return None
    missing = 4 - len(mask["shape"])
    shape, strides = [1] * missing + list(mask["shape"]), [0] * missing + list(mask["strides"])
    if mask["dtype"] != "bool":
        return read(files["mask"], {**mask, "shape": shape, "strides": strides})
    with open(files["mask"], "rb") as file:
        shown = file.read()
    room = Room(len(shown) * width)
    for at, byte in enumerate(hidden):
        room.content[at::width] = shown.translate(bytes([byte, *[0] * 255]))
    return Operand(element, shape, strides, room)


class Attention:
    """Attention as a graph of oneDNN that is one partition, compiled.

    operands: query, key, value and perhaps a mask of numbers, of equal rank. between: the type of the scores.
    Raises NotFused, or Failed of oneDNN.
    """

    def __init__(
        self, library: Any, operands: dict[str, Any], scale: float, between: str, hidden: bool
    ) -> None:
        graph = onednn.Graph(library)
        self.graph = graph
        self.given = {**operands, "scale": dense("float32", [1], ctypes.c_float(scale))}
        tensors = {
            name: graph.tensor(each.element, each.shape, each.strides)
            for name, each in self.given.items()
        }
        query, value = operands["query"], operands["value"]
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
        output = graph.tensor(query.element, shape, dense_strides(shape))
        graph.add("matmul", [found, tensors["value"]], output)
        self.output_bytes = prod(shape) * BYTES[query.element]
        rooms = {tensors[name].id: each.room for name, each in self.given.items()}
        graph.bind([(each, rooms[each.id].address) for each in graph.compile(output)])

    def run(self) -> Any:
        """Compute once, into new memory."""
        room = Room(self.output_bytes)
        self.graph.execute(room.address)
        return room


def fused(library: Any, inputs: dict[str, Any], scale: float) -> Attention:
    """Return attention in the first form that oneDNN fuses: scores of float32 if it can. Raises Refused."""
    own, masked = inputs["query"].element, "mask" in inputs
    reasons: list[str] = []
    for between in dict.fromkeys(("float32", own)):
        for hidden in (True, False) if masked else (False,):
            try:
                return Attention(library, inputs, scale, between, hidden)
            except onednn.NotFused as error:
                reasons.insert(0, f"{error}; it is fused where there is one")
            except onednn.Failed as error:
                reasons.append(f"{library.name} takes no such graph: {error}")
    raise serving.Refused(reasons[0])


class OneDnn(serving.Prepared):  # type: ignore[misc]
    """One problem, as `mlbackends.model.problem` writes it in JSON, for one copy of oneDNN."""

    def __init__(self, library: Any, problem: dict[str, Any], files: dict[str, str]) -> None:
        self.library = library
        inputs = {name: read(files[name], problem[name]) for name in ("query", "key", "value")}
        query = inputs["query"]
        mask = mask_of(problem, files)
        _refuse(library, problem, mask)
        if mask is not None:
            inputs["mask"] = mask
        groups = problem["key"]["shape"][1]
        if groups != query.shape[1]:
            inputs = {name: each.grouped(groups) for name, each in inputs.items()}
        scale = 1 / sqrt(query.shape[-1]) if problem["scale"] is None else problem["scale"]
        self.attention = fused(library, inputs, scale)
        self.output_bytes = self.attention.output_bytes
        details = {
            "version": library.version,
            "runtime": library.runtime,
            "threads": library.threads,
            "partitions": "1",
            "kernel": self.attention.graph.kernel,
        }
        self.details = {name: word for name, word in details.items() if word}

    def warm(self) -> None:
        """Compute something small, which also starts the threads."""
        small = dense(*_WARMING)
        fused(self.library, {"query": small, "key": small, "value": small}, 1.0).run()

    def call(self) -> Any:
        return self.attention.run()

    def save(self, result: Any, path: str) -> None:
        with open(path, "wb") as file:
            file.write(result.content)


def _refuse(library: Any, problem: dict[str, Any], mask: Any) -> None:
    """Raise Refused for what this release gets wrong: 3.6.2 was tried, and later sources were read."""
    query, value = problem["query"]["shape"], problem["value"]["shape"]
    release = tuple(map(int, library.version.split(".")))
    why = ""
    if 0 in (*query, *value):
        why = "takes no tensor with a dimension of 0"
    elif release < (3, 8) and query[-1] != value[-1]:
        why = "ends the process where the value is not as wide as the query; 3.8 is needed"
    elif release < (3, 7) and mask is not None and mask.shape[:2] != [query[0], 1]:
        why = f"reads a mask of {mask.shape} as one of [{query[0]}, 1, ...]; 3.7 is needed"
    if why:
        raise serving.Refused(f"{library.name} {why}")


if __name__ == "__main__":
    opened: list[Any] = []

    def prepare(request: dict[str, Any]) -> OneDnn:
        """Open the library with the first problem, so that a failure is an answer."""
        if not opened:
            opened.append(onednn.Library(sys.argv[1]))
        return OneDnn(opened[0], request["problem"], request["files"])

    serving.serve(prepare)
