"""List the types that CTranslate2 computes with, and open what it opens by name for CUDA."""

import ctypes
import glob
import os
import re
from pathlib import Path
from typing import Any

import ctranslate2


def check(child: Any) -> None:
    child.facts["compute_types"] = sorted(ctranslate2.get_supported_compute_types("cpu"))
    if not ctranslate2.get_cuda_device_count():
        return
    folder = os.path.dirname(ctranslate2.__file__)
    files = glob.glob(f"{folder}.libs/libctranslate2*") + glob.glob(f"{folder}/*ctranslate2*")
    for path in files[:1]:
        needed = set(re.findall(rb"lib(?:cublas|cudnn)\.so\.\d+", Path(path).read_bytes()))
        names = [name.decode() for name in sorted(needed)]
        child.starts("cuda", lambda names=names: [*map(ctypes.CDLL, names)] or True)
