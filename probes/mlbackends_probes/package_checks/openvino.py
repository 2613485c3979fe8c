"""List OpenVINO's devices, and add on the processor."""

import glob
from pathlib import Path
from typing import Any

import numpy as np
import openvino

COMPUTES = True


def check(child: Any) -> None:
    core = openvino.Core()
    devices = {name: core.get_property(name, "FULL_DEVICE_NAME") for name in core.available_devices}
    child.facts["devices"] = devices
    vendors = [Path(path).read_text() for path in glob.glob("/sys/class/drm/renderD*/device/vendor")]
    is_intel = "0x8086" in map(str.strip, vendors)
    if is_intel and not any(name.startswith("GPU") for name in devices):
        child.starts("gpu", lambda: core.get_property("GPU", "FULL_DEVICE_NAME"))
    operators = getattr(openvino, "opset8", None) or openvino.runtime.opset8
    number = operators.parameter([1], np.float32)
    model = openvino.Model([operators.add(number, number)], [number])
    got = core.compile_model(model, "CPU")([np.ones(1, np.float32)])[0].tolist()
    child.judge(got == [2.0], f"1 + 1 gave {got}")
