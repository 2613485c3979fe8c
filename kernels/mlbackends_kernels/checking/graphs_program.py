"""Attention of OpenVINO and of ONNX Runtime in a separate process, for `sdpa check --peers`.

The interpreter of their environment runs this file with the name of the library. Each problem is a graph of
one operation, compiled for its shapes; compiling is not part of a call.
Sources: OpenVINO, ScaledDotProductAttention-13 and "Precision Control"; ONNX, Attention-23.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

_FOLDER = os.path.dirname(os.path.abspath(__file__))
serving: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "serving.py")))
#: OpenVINO's element types.
_ELEMENTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "boolean"}
#: ONNX's opset that has Attention, and the version of the format that has that opset.
_OPSET, _FORMAT = 23, 11
_FATAL = 4


class Graph(serving.Prepared):  # type: ignore[misc]
    """One problem: its arrays by name, bfloat16 as 16-bit patterns."""

    def __init__(self, library: str, request: dict[str, Any]) -> None:
        problem, files = request["problem"], request["files"]
        names = [name for name in ("query", "key", "value", "mask") if problem[name]]
        self.arrays = {name: _read(files[name], problem[name]) for name in names}
        self.dtypes = {name: problem[name]["dtype"] for name in names}
        self.scale, self.is_causal = problem["scale"], problem["is_causal"]
        query, value = self.arrays["query"], self.arrays["value"]
        if "mask" in names:  # both libraries refuse some masks with fewer rows or columns
            mask, rows = self.arrays["mask"], (query.shape[-2], value.shape[-2])
            self.arrays["mask"] = np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-2], *rows)))
        self.output_bytes = query.nbytes // query.shape[-1] * value.shape[-1]
        self.call = {"openvino": _openvino, "onnxruntime": _onnxruntime}[library](self)

    def save(self, result: Any, path: str) -> None:
        np.ascontiguousarray(result).tofile(path)


def _openvino(problem: Graph) -> Any:
    """Return a function that computes with OpenVINO's plug-in for CPUs.

    On CPUs with instructions for bfloat16 it computes float32 and float16 in bfloat16, unless told otherwise.
    """
    library = importlib.import_module("openvino")
    operations = importlib.import_module("openvino.opset13")
    types = {name: getattr(library.Type, _ELEMENTS[dtype]) for name, dtype in problem.dtypes.items()}
    parameters = [operations.parameter(problem.arrays[name].shape, types[name]) for name in types]
    inputs = [*parameters]
    if problem.scale is not None:  # the input after the mask; a mask of one zero changes nothing
        zero, scale = (operations.constant(number, types["query"]) for number in (0.0, problem.scale))
        inputs = [*inputs[:3], *(inputs[3:] or [zero]), scale]
    node = operations.scaled_dot_product_attention(*inputs, causal=problem.is_causal)
    precision = "bf16" if problem.dtypes["query"] == "bfloat16" else "f32"
    hints = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    compiled = library.Core().compile_model(library.Model([node], parameters), "CPU", hints)
    threads = str(compiled.get_property("INFERENCE_NUM_THREADS"))
    version = library.__version__.partition("-")[0]
    problem.details = {"version": version, "threads": threads, "precision": precision}

    @cache  # made by the first call, whose memory it is; calling `compiled` itself takes 50 us more
    def request() -> Any:
        made = compiled.create_infer_request()
        for index, (name, array) in enumerate(problem.arrays.items()):
            made.set_input_tensor(index, library.Tensor(array, array.shape, types[name]))
        return made

    return lambda: request().infer(share_outputs=True)[0]


def _onnxruntime(problem: Graph) -> Any:
    """Return a function that computes with ONNX Runtime's provider for CPUs. Raises Refused without onnx."""
    library = importlib.import_module("onnxruntime")
    try:
        make = importlib.import_module("onnx.helper")
    except ModuleNotFoundError:
        why = "a model for onnxruntime is made with onnx, which is not installed"
        raise serving.Refused(why, "pip install onnx") from None
    kinds = {name: make.np_dtype_to_tensor_dtype(array.dtype) for name, array in problem.arrays.items()}
    given = [make.make_tensor_value_info(name, kinds[name], problem.arrays[name].shape) for name in kinds]
    options = {} if problem.scale is None else {"scale": problem.scale}
    node = make.make_node("Attention", [*kinds], ["out"], is_causal=int(problem.is_causal), **options)
    result = make.make_tensor_value_info("out", kinds["query"], None)
    graph = make.make_graph([node], "attention", given, [result])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", _OPSET)], ir_version=_FORMAT)
    quiet = library.SessionOptions()
    quiet.log_severity_level = _FATAL
    session = library.InferenceSession(model.SerializeToString(), quiet, providers=["CPUExecutionProvider"])
    problem.details = {"version": library.__version__}
    return lambda: session.run(None, problem.arrays)[0]


def _read(path: str, spec: dict[str, Any]) -> Any:
    """Return the array of a file, row by row."""
    dtype = np.dtype("uint16" if spec["dtype"] == "bfloat16" else spec["dtype"])
    strides = [step * dtype.itemsize for step in spec["strides"]]
    flat = np.fromfile(path, dtype)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, spec["shape"], strides))


if __name__ == "__main__":
    serving.serve(partial(Graph, sys.argv[1]))
