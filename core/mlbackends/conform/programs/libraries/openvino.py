"""OpenVINO's plug-in for CPUs, with a model of one operation for each problem."""

from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

VERSION = openvino.__version__.partition("-")[0]
HINT = "compile with INFERENCE_PRECISION_HINT=f32"
TYPES = ("float32", "float16")
_core = openvino.Core()
_AXIS = np.array([-1])


def _model(build: Any) -> Any:
    def run(*arrays: Any, **options: Any) -> Any:
        parameters = [ops.parameter(one.shape, one.dtype) for one in arrays]
        compiled = _core.compile_model(openvino.Model([build(*parameters, **options)], parameters), "CPU")
        return compiled([*arrays])[0]

    return run


def _convolution(x: Any, w: Any, stride: int, padding: int) -> Any:
    return ops.convolution(x, w, [stride] * 2, [padding] * 2, [padding] * 2, [1, 1])


def _layer_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    scaled = ops.mvn(x, _AXIS, normalize_variance=True, eps=epsilon, eps_mode="INSIDE_SQRT")
    return ops.add(ops.multiply(scaled, weight), bias)


OPERATIONS = {
    "gemm": _model(lambda a, b: ops.matmul(a, b, transpose_a=False, transpose_b=False)),
    "convolution": _model(_convolution), "softmax": _model(lambda x: ops.softmax(x, -1)),
    "layer-norm": _model(_layer_norm), "attention": _model(ops.scaled_dot_product_attention),
    "exp": _model(ops.exp), "log": _model(ops.log), "erf": _model(ops.erf),
    "sum": _model(lambda x: ops.reduce_sum(x, _AXIS)), "max": _model(lambda x: ops.reduce_max(x, _AXIS)),
    "cast": _model(lambda x, dtype: ops.convert(x, np.dtype(dtype))),
}  # fmt: skip
