"""Start the GPU if TensorFlow is built for one, and multiply two matrices."""

from typing import Any

import tensorflow as tf

COMPUTES = True


def check(child: Any) -> None:
    if tf.test.is_built_with_cuda() or tf.test.is_built_with_rocm():
        child.starts("gpu", lambda: tf.config.list_physical_devices("GPU"))
    if child.deep:
        got = tf.linalg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy().tolist()
        child.judge(got == [[11.0]], f"a product of matrices gave {got}")
