"""Which torch is compared with: its release, and whether it was built for CUDA.

The newest is followed; of an older one, what it lacks is left out.
"""

import pytest

torch = pytest.importorskip("torch")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
IS_NEWEST = RELEASE >= (2, 15)
without_cuda = pytest.mark.skipif(
    bool(torch.version.cuda), reason="compares with a torch that was built without CUDA"
)
