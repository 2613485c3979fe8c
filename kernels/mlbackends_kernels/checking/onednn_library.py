"""The graph functions of one copy of oneDNN, called through ctypes.

It imports the standard library alone, since other interpreters run it too, from Python 3.8 on.
Source: oneDNN's headers dnnl_graph.h, dnnl_graph_types.h and dnnl_common_types.h; the numbers are the same
from 3.1 to 3.13.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ELEMENTS = {"float16": 1, "bfloat16": 2, "float32": 3}
_OPERATIONS = {"add": 2, "matmul": 39, "multiply": 46, "softmax": 64}
_ATTRIBUTES = {"axis": 0x30, "transpose_b": 0x66, "mode": 0x84}
_STATUS = (
    "success", "out of memory", "invalid arguments", "unimplemented", "last implementation reached",
    "runtime error", "not required", "invalid graph", "invalid graph operation", "invalid shape",
    "invalid data type",
)  # fmt: skip
_RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 0x200: "SYCL"}
_CPU, _IN_ORDER, _FUSION, _STRIDED, _UNDEFINED = 1, 1, 1, 2, 0
_MOST_DIMENSIONS = 12
#: Verbose levels: with a line for all that is made, and without any.
_CREATED, _QUIET = 2, 0
_KERNEL = re.compile(r"graph,compile[^\n]*?,(\w+_t),dnnl_backend,")


class Failed(Exception):
    """A call of oneDNN that returned a status other than success."""

    def __init__(self, function: str, status: int) -> None:
        meaning = _STATUS[status] if status < len(_STATUS) else "unknown"
        super().__init__(f"{function} returned {status} ({meaning})")


class NotFused(Exception):
    """A graph that oneDNN does not compute in one piece."""


class LogicalTensor(ctypes.Structure):
    """dnnl_graph_logical_tensor_t."""

    _fields_ = (
        ("id", ctypes.c_size_t),
        ("ndims", ctypes.c_int),
        ("dims", ctypes.c_int64 * _MOST_DIMENSIONS),
        ("data_type", ctypes.c_int),
        ("property", ctypes.c_int),
        ("layout_type", ctypes.c_int),
        ("strides", ctypes.c_int64 * _MOST_DIMENSIONS),
    )


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
    )


class Library:
    """One copy of oneDNN. Raises OSError where it cannot be opened, AttributeError where it has no graphs."""

    def __init__(self, path: str) -> None:
        self.opened = ctypes.CDLL(path)
        self.opened.dnnl_version.restype = ctypes.POINTER(_Version)
        version = self.opened.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        self.name = f"oneDNN {self.version}"
        self.runtime = _RUNTIMES.get(version.cpu_runtime, "")
        self.engine = self.created("dnnl_engine_create", _CPU, ctypes.c_size_t(0))
        self.stream = self.created("dnnl_stream_create", self.engine, ctypes.c_uint(_IN_ORDER))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function. Raises Failed."""
        status = getattr(self.opened, function)(*arguments)
        if status:
            raise Failed(function, status)

    def created(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function that makes something, and return its handle. Raises Failed."""
        handle = ctypes.c_void_p()
        self.call(function, ctypes.byref(handle), *arguments)
        return handle

    @property
    def threads(self) -> str:
        """How many threads OpenMP gives it, "" where another runtime does."""
        with contextlib.suppress(AttributeError):
            if self.runtime == "OpenMP":
                return str(self.opened.omp_get_max_threads())
        return ""

    @contextlib.contextmanager
    def printing(self) -> Iterator[list[str]]:
        """Have it print what it makes, and hand on the lines when the block has ended."""
        lines: list[str] = []
        with tempfile.TemporaryFile() as file:
            saved = os.dup(1)
            os.dup2(file.fileno(), 1)
            self.opened.dnnl_set_verbose(_CREATED)
            try:
                yield lines
            finally:
                self.opened.dnnl_set_verbose(_QUIET)
                ctypes.CDLL(None).fflush(None)
                os.dup2(saved, 1)
                os.close(saved)
                file.seek(0)
                lines += file.read().decode(errors="replace").splitlines()


class Graph:
    """Operations that follow one another, as they are added; one partition once they are compiled."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.kernel = ""
        self.tensors: list[LogicalTensor] = []
        self._operations = 0
        self._handles: list[tuple[str, ctypes.c_void_p]] = []
        self._graph = self._create("graph", "dnnl_graph_graph_create", _CPU)

    def __del__(self) -> None:
        for kind, handle in reversed(self._handles):
            getattr(self.library.opened, f"dnnl_graph_{kind}_destroy")(handle)

    def _create(self, kind: str, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Make something, and return its handle, which is destroyed with the graph."""
        handle = self.library.created(function, *arguments)
        self._handles.append((kind, handle))
        return handle

    def tensor(
        self, element: str, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> LogicalTensor:
        """Return a tensor: an input or output with its strides, or one in between that has none."""
        tensor = LogicalTensor(
            id=len(self.tensors),
            ndims=len(shape),
            dims=(ctypes.c_int64 * _MOST_DIMENSIONS)(*shape),
            data_type=_ELEMENTS[element],
            layout_type=_UNDEFINED if strides is None else _STRIDED,
            strides=(ctypes.c_int64 * _MOST_DIMENSIONS)(*(strides or ())),
        )
        self.tensors.append(tensor)
        return tensor

    def add(
        self, kind: str, inputs: Sequence[LogicalTensor], output: LogicalTensor, **attributes: Any
    ) -> LogicalTensor:
        """Add an operation, and return its output. Raises Failed where it is refused."""
        call = self.library.call
        number, name = ctypes.c_size_t(self._operations), f"{kind}_{self._operations}".encode()
        self._operations += 1
        operation = self._create("op", "dnnl_graph_op_create", number, _OPERATIONS[kind], name)
        for each in inputs:
            call("dnnl_graph_op_add_input", operation, ctypes.byref(each))
        call("dnnl_graph_op_add_output", operation, ctypes.byref(output))
        for attribute, value in attributes.items():
            count = ctypes.c_size_t(1)
            content: Any
            if isinstance(value, bool):
                kind, content = "bool", ctypes.byref(ctypes.c_uint8(value))
            elif isinstance(value, int):
                kind, content = "s64", ctypes.byref(ctypes.c_int64(value))
            else:
                kind, content, count = "str", value.encode(), ctypes.c_size_t(len(value))
            function = f"dnnl_graph_op_set_attr_{kind}"
            call(function, operation, _ATTRIBUTES[attribute], content, count)
        call("dnnl_graph_add_op", self._graph, operation)
        return output

    def compile(self, output: LogicalTensor) -> list[LogicalTensor]:
        """Compile it, and return its inputs in the order in which they are to be given.

        Raises NotFused where it is not one partition, or Failed.
        """
        call, name, engine = self.library.call, self.library.name, self.library.engine
        number = ctypes.c_size_t()
        call("dnnl_graph_graph_finalize", self._graph)
        call("dnnl_graph_graph_filter", self._graph, _FUSION)
        call("dnnl_graph_graph_get_partition_num", self._graph, ctypes.byref(number))
        handles = (ctypes.c_void_p * number.value)()
        call("dnnl_graph_graph_get_partitions", self._graph, number, handles)
        partitions = [ctypes.c_void_p(each) for each in handles]
        self._handles += [("partition", each) for each in partitions]
        if len(partitions) != 1:
            raise NotFused(f"{name} cuts it into {len(partitions)} partitions")
        (partition,) = partitions
        supported = ctypes.c_uint8()
        call("dnnl_graph_partition_is_supported", partition, ctypes.byref(supported))
        if not supported.value:
            raise NotFused(f"{name} makes it one partition, and has no kernel for that")
        call("dnnl_graph_partition_get_input_ports_num", partition, ctypes.byref(number))
        ports = (LogicalTensor * number.value)()
        call("dnnl_graph_partition_get_input_ports", partition, number, ports)
        inputs = [self.tensors[port.id] for port in ports]
        pointer = ctypes.POINTER(LogicalTensor)
        pointers = (pointer * number.value)(*map(ctypes.pointer, inputs))
        into, one = (pointer * 1)(ctypes.pointer(output)), ctypes.c_size_t(1)
        create = "dnnl_graph_compiled_partition_create"
        self._compiled = made = self._create("compiled_partition", create, partition)
        with self.library.printing() as lines:
            call(
                "dnnl_graph_partition_compile", partition, made, number, pointers, one, into, engine
            )
        kernels = _KERNEL.findall("\n".join(lines))
        self.kernel = kernels[-1] if kernels else ""
        self._output = self._bound(output, ctypes.c_void_p())
        return inputs

    def _bound(self, tensor: LogicalTensor, address: ctypes.c_void_p) -> ctypes.c_void_p:
        engine, described = self.library.engine, ctypes.byref(tensor)
        return self._create("tensor", "dnnl_graph_tensor_create", described, engine, address)

    def bind(self, inputs: Sequence[tuple[LogicalTensor, ctypes.c_void_p]]) -> None:
        """Say where the inputs lie, in the order that `compile` returned."""
        handles = [self._bound(tensor, address).value for tensor, address in inputs]
        self._inputs = (ctypes.c_void_p * len(handles))(*handles)

    def execute(self, into: ctypes.c_void_p) -> None:
        """Compute once, into the memory at an address."""
        call, stream = self.library.call, self.library.stream
        call("dnnl_graph_tensor_set_data_handle", self._output, into)
        outputs = (ctypes.c_void_p * 1)(self._output.value)
        count, one = ctypes.c_size_t(len(self._inputs)), ctypes.c_size_t(1)
        function = "dnnl_graph_compiled_partition_execute"
        call(function, self._compiled, stream, count, self._inputs, one, outputs)
        call("dnnl_stream_wait", stream)
