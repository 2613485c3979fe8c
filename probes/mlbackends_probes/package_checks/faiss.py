"""Start the GPU if FAISS is built for one, and find the nearest of two vectors."""

from typing import Any

import faiss
import numpy as np

COMPUTES = True


def check(child: Any) -> None:
    if hasattr(faiss, "StandardGpuResources"):
        child.starts("gpu", faiss.get_num_gpus)
    index = faiss.IndexFlatL2(2)
    index.add(np.array([[0, 0], [3, 4]], np.float32))
    found = index.search(np.array([[3, 3]], np.float32), 1)
    distance, at = (array.tolist() for array in found)
    is_right = (distance, at) == ([[1.0]], [[1]])
    child.judge(is_right, f"the nearest of two vectors was {at} at {distance}")
