"""Apple MPS: the GPU of a Mac through Metal.

Finds:    the macOS version, the chip, whether Python runs translated by Rosetta, and the variables
          that steer PyTorch's MPS.
Loadable: the Metal framework opens and has MTLCreateSystemDefaultDevice.
Usable:   the default GPU fills a buffer, and what is read there is right.
Caveats:  a session without a GPU (some virtual machines, some CI) gets no device. What PyTorch
          needs beyond Metal is in `needs_macos` and the type facts.
Source:   Apple Metal, MTLDevice and MTLGPUFamily; PyTorch issues 164943 (macOS 14 since 2.10), 139425
          (13 in 2.5) and 119641 (bfloat16 since macOS 14); OperationUtils.mm (complex since macOS 14).
"""

import contextlib
import re
from typing import Any

from msgspec.structs import replace

from mlbackends.base.quantities import to_int
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.host.system.kernel import system_controls
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.model.records import Answer, Device, FactValue, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_VERSION_FILE = "/System/Library/CoreServices/SystemVersion.plist"
# A Python linked against an old SDK sees "10.16" in the first file; this one is always right.
_TRUE_VERSION_FILE = "/System/Library/CoreServices/.SystemVersionPlatform.plist"
_METAL = "/System/Library/Frameworks/Metal.framework/Metal"
_CORE_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
_SONOMA = (14, 0)
# From which torch which macOS is needed. When 13.0 came is not documented; 2.5 needs it.
_NEEDS = (((2, 10), (14, 0)), ((2, 5), (13, 0)), ((1, 12), (12, 3)))
_LAST_INTEL_TORCH = (2, 2)
_NO_FAMILY = 1000
_APPLE_FAMILIES = range(_NO_FAMILY + 20, _NO_FAMILY, -1)
_OTHER_FAMILIES = {2002: "Mac2", 5001: "Metal3", 5002: "Metal4"}
_CHECK_BYTES = 4096


def find(host: Host) -> Finding:
    """Look for macOS, its chip, and what the installed torch needs."""
    if host.platform != "darwin":
        message = f"MPS is part of macOS; this is {host.platform}"
        return Finding(reasons=(Reason("not-this-platform", message),))
    controls = system_controls(host)
    chip = controls.get("machdep.cpu.brand_string", "")
    is_apple = chip.startswith(("Apple", "VirtualApple")) or host.machine == "arm64"
    is_translated = host.machine == "x86_64" and (is_apple or controls.get("sysctl.proc_translated") == "1")
    text = host.read(_VERSION_FILE, 1 << 16)
    name, build = _plist(text, "ProductVersion"), _plist(text, "ProductBuildVersion")
    if name == "10.16":
        name = _plist(host.read(_TRUE_VERSION_FILE, 1 << 16), "ProductVersion")
    has_name = re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,2}", name)
    version = tuple(map(int, name.split("."))) if has_name else ()
    newer = [] if version >= _SONOMA else ["bfloat16", "complex64"]
    # Only the device tree has the number of GPU cores.
    tree = host.run("ioreg", "-rc", "AGXAccelerator", "-d1", timeout=1.0)
    cores = re.search(r'"gpu-core-count" = (\d{1,4})', tree)
    needed, warnings = _of_torch(host, version, is_apple=is_apple)
    facts = {
        "is_apple_silicon": is_apple or is_translated,
        "is_translated": is_translated,
        "macos_version": ".".join(map(str, version)),
        "unsupported_types": ["float64", "complex128", *newer] if version else [],
        "macos_build": build if version and re.fullmatch(r"\w{1,20}", build) else "",
        "chip": chip,
        "is_virtual_machine": {"0": False, "1": True}.get(controls.get("kern.hv_vmm_present", "")),
        "gpu_core_count": (int(cores[1]) or None) if cores else None,
        **steering(host, "mps"),
        "torch_needs_macos": ".".join(map(str, needed)),
    }
    if is_translated:
        message = f"this Python is for x86_64 and runs through Rosetta on {chip or 'Apple silicon'}"
        hint = "install an arm64 Python; PyTorch's MPS needs one"
        warnings.insert(0, Reason("translated", message, hint))
    memory = to_int(controls.get("hw.memsize", ""))
    memory = memory if is_apple and memory and memory > 0 else None
    device = Device(kind="mps", index=0, name=chip, memory_bytes=memory)
    metal = Library("Metal", _METAL, found_by="system-framework", wins=True)
    return Finding((metal,), (device,), nonempty(facts), warnings=tuple(warnings))


def _plist(text: str, key: str) -> str:
    match = re.search(rf"<key>{key}</key>\s*<string>([^<]*)</string>", text)
    return match[1].strip() if match else ""


def _of_torch(
    host: Host, version: tuple[int, ...], *, is_apple: bool
) -> tuple[tuple[int, ...], list[Reason]]:
    """Return the macOS that the installed torch needs, and warnings if this one is not sufficient.

    torch itself reports "not available" without a reason.
    """
    torch = distribution(host, "torch")
    match = re.match(r"(\d{1,4})\.(\d{1,4})", torch.version) if torch else None
    if torch is None or match is None:
        return (), []
    release = (int(match[1]), int(match[2]))
    needed = next((macos for since, macos in _NEEDS if release >= since), ())
    warnings = []
    if needed and version and version < needed:
        have, needs = ".".join(map(str, version)), ".".join(map(str, needed))
        message = f"torch {torch.version} needs macOS {needs} for MPS; this is macOS {have}"
        warnings.append(Reason("too-old", message, "update macOS, or install an older torch"))
    if not is_apple and release > _LAST_INTEL_TORCH:
        message = f"torch {torch.version} has no MPS on an Intel Mac; 2.2 was the last for them"
        warnings.append(Reason("unsupported-hardware", message))
    return needed, warnings


def load(opened: CDLL, library: Library) -> Answer:
    """Check that Metal has its entry point; nothing is called yet."""
    opened["MTLCreateSystemDefaultDevice"]
    return Answer(library)


def use(opened: CDLL, library: Library) -> Answer:
    """Describe the default GPU, and let it fill a buffer."""
    with contextlib.suppress(OSError):  # without it a command-line program gets no default device
        ctypes.CDLL(_CORE_GRAPHICS)
    opened.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
    handle = opened.MTLCreateSystemDefaultDevice()
    if not handle:
        raise NotUsable(
            "no-device",
            "MTLCreateSystemDefaultDevice gave no device to this session",
            "run it in a login session of a Mac with a GPU; some virtual machines have none",
        )
    metal = _Metal(opened)

    def supports(family: int) -> bool:
        return bool(metal.send(handle, "supportsFamily:", ctypes.c_bool, (ctypes.c_long, family)))

    apple = next((f"Apple{at - _NO_FAMILY}" for at in _APPLE_FAMILIES if supports(at)), "")
    families = [name for at, name in _OTHER_FAMILIES.items() if supports(at)]
    memory = int(metal.send(handle, "recommendedMaxWorkingSetSize", ctypes.c_uint64))
    string = metal.send(handle, "name", ctypes.c_void_p)
    text = metal.send(string, "UTF8String", ctypes.c_char_p) if string else None
    facts: dict[str, FactValue] = {"families": [apple, *families] if apple else families}
    facts["is_memory_shared"] = bool(metal.send(handle, "hasUnifiedMemory", ctypes.c_bool))
    if memory:
        facts["recommended_memory_bytes"] = memory
    name = text.decode(errors="replace") if text else ""
    device = Device("mps", 0, name, Presence.LOADABLE, capability=apple)
    call = Calls(opened)
    call.learned = Answer(library, (device,), facts)
    _fill_and_read(metal, handle, call)
    return Answer(library, (replace(device, presence=Presence.USABLE),), facts)


class _Metal:
    """Sends messages to Objective-C objects; the runtime comes with Metal, which links to it."""

    def __init__(self, opened: CDLL) -> None:
        opened.sel_registerName.restype = ctypes.c_void_p
        opened.sel_registerName.argtypes = [ctypes.c_char_p]
        self._opened = opened
        self._send = ctypes.cast(opened.objc_msgSend, ctypes.c_void_p).value or 0

    def send(self, target: int, message: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
        """Send a message with typed arguments; the call must have the method's own signature."""
        kinds = [kind for kind, _ in arguments]
        call = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *kinds)(self._send)
        selector = self._opened.sel_registerName(message.encode())
        return call(target, selector, *(value for _, value in arguments))


def _fill_and_read(metal: _Metal, handle: int, call: Calls) -> None:
    class Range(ctypes.Structure):
        _fields_ = (("location", ctypes.c_ulong), ("length", ctypes.c_ulong))

    def created(target: int, message: str, *arguments: tuple[Any, Any]) -> int:
        result = metal.send(target, message, ctypes.c_void_p, *arguments)
        if not result:
            text = f"Metal answers {message} with nothing"
            raise NotUsable("call-failed", text, learned=call.learned)
        return int(result)

    size, options = (ctypes.c_ulong, _CHECK_BYTES), (ctypes.c_ulong, 0)
    buffer = created(handle, "newBufferWithLength:options:", size, options)
    commands = created(created(handle, "newCommandQueue"), "commandBuffer")
    encoder = created(commands, "blitCommandEncoder")
    fill = ((ctypes.c_void_p, buffer), (Range, Range(0, _CHECK_BYTES)), (ctypes.c_ubyte, 0x5A))
    metal.send(encoder, "fillBuffer:range:value:", None, *fill)
    metal.send(encoder, "endEncoding", None)
    metal.send(commands, "commit", None)
    metal.send(commands, "waitUntilCompleted", None)
    back = ctypes.string_at(created(buffer, "contents"), _CHECK_BYTES)
    call.require_filled("the GPU", back, b"\x5a")
