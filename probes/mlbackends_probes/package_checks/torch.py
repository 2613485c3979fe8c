"""Multiply two matrices on the processor and on each device that PyTorch offers."""

from typing import Any

import torch

COMPUTES = True


def check(child: Any) -> None:
    if not child.deep:
        return
    devices = ["cpu"]
    child.facts["configuration"] = torch.__config__.show()
    child.facts["threads"] = torch.get_num_threads()
    child.facts["interop_threads"] = torch.get_num_interop_threads()
    for kind in ("cuda", "xpu", "mps"):
        backend = getattr(torch, kind, None)
        if backend is not None and backend.is_available():
            devices += [f"{kind}:{index}" for index in range(backend.device_count())]
    for device in devices:
        left = torch.arange(6, dtype=torch.float32, device=device).reshape(2, 3)
        got = (left @ left.T).tolist()
        right = [[5.0, 14.0], [14.0, 50.0]]
        child.judge(got == right, f"on {device} a product of matrices gave {got}")
        child.facts.setdefault("computed_on", []).append(device)
