"""cuDNN's graph of an attention problem, by NVIDIA's frontend, and whether cuDNN supports it.

Source: cudnn-frontend 1.32, docs/operations/Attention.md; the keys of a described device are those of
cudnnBackendDescriptor's device properties, as the frontend serializes them.
"""

import contextlib
import ctypes
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem, TensorSpec, contiguous_strides
from mlbackends_kernels.checking import serving

#: By capability: the multiprocessors of a typical chip, and the most bytes of shared memory of a block.
#:
#: Source: CUDA Programming Guide, Compute Capabilities; NVIDIA's data sheets of A100, A40, Orin, L40S, H100,
#: B200, B300, Thor, RTX PRO 6000 and GB10.
_SIZES = {
    (8, 0): (108, 166912),
    (8, 6): (84, 101376),
    (8, 7): (16, 166912),
    (8, 9): (142, 101376),
    (9, 0): (132, 232448),
    (10, 0): (148, 232448),
    (10, 3): (148, 232448),
    (11, 0): (20, 232448),
    (12, 0): (188, 101376),
    (12, 1): (48, 101376),
}

_DECLINED = re.compile(r"(?s).*the backend declined: (.*?)(?:; python engines declined.*|\)?\s*)$")
_REASONS = re.compile(r"Reason: (.+?)(?: at: .*)?$", re.MULTILINE)


class Graph(NamedTuple):
    """A graph that cuDNN supports. tensors: the operands and results of a call, by name."""

    graph: Any
    tensors: dict[str, Any]


class Refused(Exception):
    """A graph that cuDNN does not support; the message is cuDNN's."""


def attention_graph(
    problem: AttentionProblem,
    *,
    backward: bool = False,
    handle: Any = None,
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """Return the graph of a problem, forward with the log-sum-exp, or backward.

    handle: of its device; None for a device that the problem only describes. strides: of
    output, logsumexp and grad_out as inputs of the backward pass, contiguous unless given. Raises Refused.
    """
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    types = {"float16": cudnn.data_type.HALF, "bfloat16": cudnn.data_type.BFLOAT16}
    types |= {"float32": cudnn.data_type.FLOAT}
    try:
        graph = cudnn.pygraph(
            io_data_type=types[problem.dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            **(_described(cudnn, problem) if handle is None else {"handle": handle}),
        )
        tensors: dict[str, Any] = {}

        def given(name: str, spec: TensorSpec) -> Any:
            missing = 4 - len(spec.shape)
            shape, strides = [1] * missing + [*spec.shape], [0] * missing + [*spec.strides]
            tensors[name] = graph.tensor(name=name, dim=shape, stride=strides, data_type=types[spec.dtype])
            return tensors[name]

        def result(name: str, tensor: Any, spec: TensorSpec) -> None:
            tensor.set_output(True).set_dim([*spec.shape]).set_stride([*spec.strides])
            tensors[name] = tensor.set_data_type(types[spec.dtype])

        inputs = {name: getattr(problem, name) for name in ("query", "key", "value")}
        query, key, value = (given(name, spec) for name, spec in inputs.items())
        output = TensorSpec(problem.output_shape, problem.dtype)
        rows = (*output.shape[:-1], 1)
        stats = TensorSpec(rows, "float32", contiguous_strides(rows))

        def input_of_backward(name: str, spec: TensorSpec) -> Any:
            return given(name, replace(spec, strides=(strides or {}).get(name, spec.strides)))

        options: dict[str, Any] = {
            "attn_scale": problem.head_dim**-0.5 if problem.scale is None else problem.scale
        }
        if problem.is_causal:
            options["use_causal_mask" + "_bottom_right" * problem.lower_right] = True
        if problem.mask is not None:
            options["bias"] = given("mask", problem.mask)
        if backward:
            gradients = graph.sdpa_backward(
                q=query,
                k=key,
                v=value,
                o=input_of_backward("output", output),
                dO=input_of_backward("grad_out", output),
                stats=input_of_backward("logsumexp", stats),
                **options,
            )
            for (name, spec), gradient in zip(inputs.items(), gradients, strict=True):
                result(f"grad_{name}", gradient, TensorSpec(spec.shape, spec.dtype))
        else:
            attended, sums = graph.sdpa(q=query, k=key, v=value, generate_stats=True, **options)
            result("output", attended, output)
            result("logsumexp", sums, stats)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        if handle is not None:
            graph.build_plans()
    except cudnn.cudnnGraphNotSupportedError as error:
        raise Refused(own_words(str(error))) from error
    return Graph(graph, tensors)


def own_words(message: str) -> str:
    """Return cuDNN's reason from a message that lists every engine and where in cuDNN it ended."""
    message = _DECLINED.sub(r"\1", message)
    reasons = _REASONS.findall(message)
    return " ".join((reasons[0] if reasons else message).split())[:300]


def _described(cudnn: Any, problem: AttentionProblem) -> dict[str, Any]:
    """Return the options that describe a device by its capability. Raises Refused for an unknown one."""
    capability = problem.capability or (0, 0)
    if capability not in _SIZES:
        raise Refused(f"devices of capability {problem.device.capability} are not described here")
    processors, shared = _SIZES[capability]
    number = capability[0] * 10 + capability[1]
    properties = {
        "deviceName": problem.device.capability, "deviceVer": number * 10, "driverVer": 13000,
        "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "warpSize": 32,
        "multiProcessorCount": processors, "totalGlobalMem": 80 << 30, "l2CacheSize": 50 << 20,
        "memoryBusWidth": 5120, "memClockRateKHz": 2600000, "smClockRateKHz": 1700000,
        "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxRegistersPerSM": 65536,
        "regsPerBlock": 65536, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": shared,
        "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
    }  # fmt: skip
    device = cudnn.create_device_properties(json.dumps(properties))
    return {"device_property": device, "sm_version": number, "sm_count": processors}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return cuDNN's version if it supports the problem of a request on the device that it describes.

    Raises `serving.Refused` if it does not.
    """
    problem = msgspec.convert(request["problem"], AttentionProblem)
    version = _loaded().backend_version_string()
    for backward in (False, True)[: 1 + problem.wants_gradient]:
        try:
            attention_graph(problem, backward=backward)
        except Refused as refused:
            raise serving.Refused(str(refused)) from refused
    return {"version": version}


@lru_cache(maxsize=1)
def _loaded() -> Any:
    """Return the frontend; without a CUDA driver, over an empty one that lets cuDNN load."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        package = find_spec("mlbackends_kernels")
        folder = Path(str(package.origin)).parent if package else Path()
        with contextlib.suppress(OSError):  # cuDNN then reports what it lacks
            ctypes.CDLL(str(folder / "lib" / "no_driver.so"), ctypes.RTLD_GLOBAL)
    import cudnn

    return cudnn
