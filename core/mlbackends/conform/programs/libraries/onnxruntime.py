"""ONNX Runtime's provider for CPUs, with a model of one node for each problem."""

from typing import Any

import onnxruntime
from onnx import TensorProto, helper

VERSION = onnxruntime.__version__
_NUMBERS = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
TYPES = tuple(_NUMBERS)
_OPSET, _FORMAT, _FATAL = 17, 8, 4


def _node(name: str, reduced: tuple[int, ...] = (), **fixed: Any) -> Any:
    def run(*arrays: Any, dtype: str = "", stride: int = 1, padding: int = 0, **options: Any) -> Any:
        kinds = [_NUMBERS[one.dtype.name] for one in arrays]
        names = [f"x{at}" for at in range(len(arrays))]
        given = [
            helper.make_tensor_value_info(name, kind, one.shape)
            for name, kind, one in zip(names, kinds, arrays)  # noqa: B905  for Python 3.9
        ]
        if name == "Conv":
            options = {"strides": [stride] * 2, "pads": [padding] * 4}
        elif dtype:
            options = {"to": _NUMBERS[dtype]}
        constants = [helper.make_tensor("axes", TensorProto.INT64, [1], reduced)] if reduced else []
        node = helper.make_node(name, [*names, *(one.name for one in constants)], ["y"], **fixed, **options)
        result = helper.make_tensor_value_info("y", options.get("to", kinds[0]), None)
        graph = helper.make_graph([node], "one", given, [result], constants)
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_FORMAT).SerializeToString()
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = _FATAL
        session = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
        return session.run(None, {one.name: array for one, array in zip(given, arrays)})[0]  # noqa: B905

    return run


OPERATIONS = {
    "gemm": _node("MatMul"), "convolution": _node("Conv"), "softmax": _node("Softmax", axis=-1),
    "layer-norm": _node("LayerNormalization", axis=-1), "exp": _node("Exp"), "log": _node("Log"),
    "erf": _node("Erf"), "sum": _node("ReduceSum", (-1,), keepdims=0), "cast": _node("Cast"),
    "max": _node("ReduceMax", axes=[-1], keepdims=0),
}  # fmt: skip
