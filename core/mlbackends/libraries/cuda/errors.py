"""What the numbers that CUDA's functions return mean for a user; errors.json has them.

The driver and the runtime share their numbers since CUDA 10.1; 35 is the runtime's alone.

Source: CUDA Driver API and CUDA Runtime API references, CUresult and cudaError_t.
"""

import os

from mlbackends.libraries.cuda.visible_devices import VARIABLE, hides_everything
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer
from mlbackends.model.tables import table

CODES: dict[str, str] = table("libraries/cuda/errors")["codes"]

NO_DEVICE = 100


def refused(function: str, code: int, name: str = "", learned: Answer | None = None) -> NotUsable:
    """Return what to raise where a CUDA function returned something else than 0."""
    meanings = table("libraries/cuda/errors")["meanings"]
    reason, meaning, hint = meanings.get(str(code), ("call-failed", "", ""))
    value = os.environ.get(VARIABLE)
    if code == NO_DEVICE and value is not None and hides_everything(value):
        value = value.encode(errors="replace").decode()  # a report holds text only
        hint = f'{VARIABLE} is "{value}", which hides every GPU: unset it'
    message = f"{function} returned {code}" + (f" ({name})" if name else "")
    return NotUsable(reason, f"{message}: {meaning}" if meaning else message, hint, learned)
