"""Run a model of one node, which returns its input, by each provider of ONNX Runtime."""

from functools import partial
from typing import Any

import numpy as np
import onnxruntime

COMPUTES = True

#: One node, Identity, from "x" to "y", each one 32-bit float: ModelProto of onnx.proto, in version 8.
_MODEL = (
    b'\x08\x08:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01g'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x02\x10\r"
)


def check(child: Any) -> None:
    def runs(provider: str) -> bool:
        session = onnxruntime.InferenceSession(_MODEL, providers=[provider])
        got = session.run(None, {"x": np.ones(1, np.float32)})[0].tolist()
        child.judge(got == [1.0], f"{provider} did not return its input")
        return provider in session.get_providers()

    started = ["cpu"]
    offered = {
        name.replace("ExecutionProvider", "").lower(): name for name in onnxruntime.get_available_providers()
    }
    for short, provider in offered.items():
        if short in ("cpu", "azure"):
            continue
        if child.starts(short, partial(runs, provider)):
            started.append(short)
        elif hasattr(onnxruntime, "preload_dlls"):
            why = child.facts["accelerators"][short]
            if "cannot open" in why and child.starts(
                short, lambda name=provider: (onnxruntime.preload_dlls(), runs(name))[1]
            ):
                why += "; it starts after onnxruntime.preload_dlls()"
            child.facts["accelerators"][short] = why
    runs(offered["cpu"])
    child.facts["providers"] = sorted(started)
