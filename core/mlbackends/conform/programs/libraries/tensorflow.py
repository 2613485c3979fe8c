"""TensorFlow on the CPU: oneDNN and Eigen."""

import os
from functools import partial
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

VERSION = tf.__version__
HINT = "export ONEDNN_DEFAULT_FPMATH_MODE=STRICT"
TYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")


def tensor(array: Any, dtype: str) -> Any:
    """Return an array as a tensor."""
    return tf.cast(tf.constant(array), dtype)


def _convolution(x: Any, w: Any, stride: int, padding: int) -> Any:
    image, kernel = tf.transpose(x, (0, 2, 3, 1)), tf.transpose(w, (2, 3, 1, 0))
    pads = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return tf.transpose(tf.nn.conv2d(image, kernel, stride, pads), (0, 3, 1, 2))


def _layer_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    mean, variance = tf.nn.moments(x, (-1,), keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, weight, epsilon)


OPERATIONS = {
    "gemm": tf.matmul, "convolution": _convolution, "softmax": tf.nn.softmax, "layer-norm": _layer_norm,
    "exp": tf.exp, "log": tf.math.log, "erf": tf.math.erf, "cast": tf.cast, "fft": tf.signal.fft,
    "sum": partial(tf.reduce_sum, axis=-1), "max": partial(tf.reduce_max, axis=-1),
}  # fmt: skip
