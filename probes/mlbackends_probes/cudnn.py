"""cuDNN: NVIDIA's deep-learning primitives.

Finds:    every libcudnn and the sub-libraries next to it, in wheels (nvidia-cudnn-jit too), conda,
          CUDNN_PATH, CUDA_HOME, customary folders and the loader's cache.
Usable:   cudnnCreate succeeds on device 0 and, where the operations' sub-library is there, a
          softmax is right.
Caveats:  libcudnn is a shim that opens its sub-libraries when they are first called, and ends the
          process if one is missing; so none is called that is not there.
Source:   cuDNN API reference, cudnnGetVersion, cudnnGetMaxDeviceVersion, cudnnSoftmaxForward.
"""

import os

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import (
    CudaLibrary,
    agree,
    runtime_version,
    version_in_file_name,
    versioned,
)
from mlbackends.libraries.search import libraries_named
from mlbackends.model.records import Answer, Finding, Library

LIBRARY = CudaLibrary(
    "cudnn",
    ("libcudnn",),
    headers=("cudnn_version.h", "cudnn.h"),
    macros=("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
    homes=("CUDNN_PATH", "CUDNN_HOME"),
    namer="cudnnGetErrorString",
)
SUB_LIBRARIES = {
    8: ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    9: (
        *("graph", "ops", "adv", "cnn", "heuristic"),
        *("engines_precompiled", "engines_runtime_compiled"),
    ),
}
#: All that nvidia-cudnn-jit has: it compiles its kernels, and has no legacy interface.
JIT = {"graph", "engines_runtime_compiled"}
#: The one that returns the version; without it, cudnnGetVersion aborts.
NEEDED = {8: "ops_infer", 9: "graph"}
#: Those that compare their version with the library's: cudnnOpsInferVersionCheck, ...
CHECKED = {8: SUB_LIBRARIES[8], 9: ("graph", "ops", "cnn", "adv")}
#: Sub-libraries of newer releases, which are not missed if they do not exist.
_LATER_PARTS = {9: ("engines_tensor_ir", "ext")}
_PART = pattern(r"libcudnn_(\w+)\.so\.(\d+)|cudnn_(\w+)64_(\d+)\.dll")
_BEFORE = ("LD_PRELOAD", "LD_LIBRARY_PATH")
_AFTER = ("ld.so.cache", "system-folder")


def find(host: Host) -> Finding:
    """Look for every libcudnn, and for the sub-libraries next to each."""
    finding = LIBRARY.find(host)
    libraries, warnings = [], list(finding.warnings)
    for library in finding.libraries:
        described, doubts = _with_parts(host, library)
        libraries.append(described)
        warnings += doubts
    warnings += _shadowed(host, libraries)
    return replace(finding, libraries=tuple(libraries), warnings=tuple(warnings))


def _with_parts(host: Host, library: Library) -> tuple[Library, list[Reason]]:
    """Add which sub-libraries are next to a copy, with a warning for those that do not match."""
    expected = SUB_LIBRARIES.get(_major(library), ())
    if library.reasons or not expected:
        return library, []
    beside: dict[str, str] = {}
    for folder in {os.path.dirname(host.realpath(library.path)), os.path.dirname(library.path)}:
        for name in host.listdir(folder):
            path, part = f"{folder}/{name}", _PART.fullmatch(name.lower())
            numbers = (part[2] or part[4]) if part else ""
            if part and numbers == str(_major(library)) and host.exists(path):
                beside[part[1] or part[3]] = host.realpath(path)
    missing = [name for name in expected if name not in beside]
    facts = {**library.facts, "sub_libraries": sorted(beside), "missing_sub_libraries": missing}
    doubts = []
    if missing and set(beside) != JIT:
        listed = ", ".join(missing)
        message = f"{library.path} lacks {listed} next to it; programs that need them abort"
        doubts.append(Reason("sub-library-missing", message, "reinstall cuDNN as a whole"))
    for name, path in beside.items():
        version = version_in_file_name(os.path.basename(path))
        if version and library.version and not agree(version, library.version):
            message = f"{name}: {path} is {version}, and {library.path} is {library.version}"
            doubts.append(Reason("sub-library-mismatch", message, "keep one cuDNN there"))
    return replace(library, facts=facts), doubts


def _shadowed(host: Host, libraries: list[Library]) -> list[Reason]:
    """Return a warning for each sub-library that the loader takes from another cuDNN.

    They are opened by name: LD_LIBRARY_PATH comes before the folder of libcudnn itself, and the
    loader's cache after it.
    """
    warnings = []
    for winner in (copy for copy in libraries if copy.wins and ".so" in copy.path):
        major, home = _major(winner), os.path.dirname(host.realpath(winner.path))
        for part in (*SUB_LIBRARIES.get(major, ()), *_LATER_PARTS.get(major, ())):
            fitting = [
                copy
                for copy in libraries_named(host, "cudnn", f"libcudnn_{part}")
                if not copy.reasons and copy.soname == f"libcudnn_{part}.so.{major}"
            ]
            beside = [copy for copy in fitting if os.path.dirname(host.realpath(copy.path)) == home]
            first = next((copy for copy in fitting if copy.found_by in _BEFORE), None)
            if first is None and not beside:
                first = next((copy for copy in fitting if copy.found_by in _AFTER), None)
            if first is None or first in beside:
                continue
            real = host.realpath(first.path)
            at = os.path.dirname(real)
            around = (copy for copy in libraries if os.path.dirname(host.realpath(copy.path)) == at)
            # Its file's version, else that of the libcudnn next to it.
            version = version_in_file_name(os.path.basename(real))
            version = version or next((copy.version for copy in around), "")
            if version and winner.version and agree(version, winner.version):
                continue
            version_text = f", which is {version}," if version else ""
            instead = "before the one next to it" if beside else "as none is next to it"
            message = (
                f"{winner.path} ({winner.version or 'of unknown version'}) gets {first.path}{version_text}"
                f" {instead}: {first.found_by} names it"
            )
            hint = f"remove {os.path.dirname(first.path)} from {first.found_by}"
            if first.found_by not in _BEFORE:
                hint = "install one whole cuDNN, and remove the other"
            warnings.append(Reason("sub-library-shadowed", message, hint))
    return warnings


def load(opened: CDLL, library: Library) -> Answer:
    """Ask versions, after a look whether the sub-library that returns them is there."""
    major, call = _major(library), LIBRARY.calls(opened)
    needed = NEEDED.get(major)
    if needed in _strings(library, "missing_sub_libraries"):
        is_dll = library.soname.endswith(".dll")
        file = f"cudnn_{needed}64_{major}.dll" if is_dll else f"libcudnn_{needed}.so.{major}"
        try:  # the loader may find it elsewhere
            ctypes.CDLL(file)
        except OSError:
            message = f"{library.path} needs {file}, which is not next to it, nor does the loader find it"
            raise NotUsable("sub-library-missing", message, "reinstall cuDNN as a whole") from None
    runtime, highest = (call.number(f"cudnnGet{name}", 0) for name in ("CudartVersion", "MaxDeviceVersion"))
    answer = versioned(
        library,
        cudnn_release(call.number("cudnnGetVersion")),
        cuda_version=runtime_version(runtime),
        max_compute_capability=f"{highest // 100}.{highest % 100 // 10}" if highest else "",
    )
    present = _strings(library, "sub_libraries")
    warnings = []
    for name in CHECKED.get(major, ()):
        function = f"cudnn{name.title().replace('_', '')}VersionCheck"
        if name in present and hasattr(opened, function) and (status := call.status(function)):
            meaning = call.name_of(status)
            code = "sub-library-mismatch" if "MISMATCH" in meaning else "sub-library-missing"
            message = f"{function} returned {status} ({meaning}) for {library.path}"
            warnings.append(Reason(code, message, "keep one whole cuDNN in that folder"))
    return replace(answer, warnings=(*answer.warnings, *warnings))


def use(opened: CDLL, library: Library) -> Answer:
    """Create a handle on the device and, if the operations are there, compute a softmax."""
    call = LIBRARY.calls(opened)
    device = first_device(call.number("cudnnGetCudartVersion", 0) // 1000)
    handle = call.create("cudnnCreate")
    if not {"ops", "ops_infer"} & set(_strings(library, "sub_libraries")):
        return Answer(library)
    numbers, result = device.floats(0, 0, 0, 0), device.floats(0, 0, 0, 0)
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    shape = call.create("cudnnCreateTensorDescriptor")
    call("cudnnSetTensor4dDescriptor", shape, 0, 0, 1, 4, 1, 1)  # NCHW of floats
    accurate, over_channels = 1, 1
    operands = (one, shape, numbers, zero, shape, result)
    call("cudnnSoftmaxForward", handle, accurate, over_channels, *operands)
    expect("a softmax of zeros", device.read_floats(result, 4), (0.25, 0.25, 0.25, 0.25))
    return Answer(library)


def _major(library: Library) -> int:
    number = library.soname.rpartition(".so.")[2].split(".")[0].removeprefix("cudnn64_")
    return int(number) if number.isdecimal() else 0


def _strings(library: Library, fact: str) -> list[str]:
    value = library.facts.get(fact, [])
    return value if isinstance(value, list) else []
