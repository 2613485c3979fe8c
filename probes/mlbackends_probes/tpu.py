"""Google TPU: the chips of a TPU machine, and libtpu.

Finds:    TPU chips on PCI, /dev/accel* and /dev/vfio, every libtpu.so, and the TPU_* variables.
Loadable: GetPjrtApi answers with the version of its interface.
Caveats:  nothing is computed: libtpu reserves the chips for one process, which would disturb others.
Source:   JAX, jax/_src/hardware_utils.py (PCI names); OpenXLA, pjrt_c_api.h; Cloud TPU
          documentation, "TPU environment variables".
"""

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import all_denied, device_nodes
from mlbackends.host.host import Host
from mlbackends.host.pci import of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, absent_but_on_linux, libraries_named
from mlbackends.model.records import Answer, Finding, Library, nonempty

GROUP = "accelerator"

_OWN_VARIABLES = ("TPU_", "LIBTPU_")
_PATH = "TPU_LIBRARY_PATH"
_VERSION_AT = 4  # PJRT_Api: its own two words and two of its version come first


def find(host: Host) -> Finding:
    """Look for chips, their nodes, and every copy of libtpu."""
    wheel = distribution(host, "libtpu") or distribution(host, "libtpu-nightly")
    libraries = libraries_named(host, "libtpu", "libtpu", wheels=("libtpu",) if wheel else ())
    named = host.env(_PATH)
    if named.startswith("/") and named not in {library.path for library in libraries}:
        library = Library("libtpu", named, found_by=_PATH, wins_because=f"{_PATH} names the file")
        if host.exists(named):
            library = replace(library, wins=True)
        else:
            message = f"{_PATH} names {named}, which does not exist"
            library = replace(library, reasons=(Reason("dangling-link", message),))
        libraries.insert(0, library)
    generations: dict[str, str] = table("host/pci_names")["tpu"]
    chips = [card for card in of_vendor(host, "1ae0") if card.device in generations]
    if not libraries and not chips:
        return Finding(reasons=(absent_but_on_linux(host, "TPU on PCI and no libtpu.so", (_PATH,)),))
    nodes = device_nodes(host, "accel") if chips else []
    nodes += [f"/dev/vfio/{name}" for name in host.listdir("/dev/vfio") if name.isdigit()]
    environment = steering(host, "tpu")
    names = environment.get("environment")
    is_own = isinstance(names, dict) and any(name.startswith(_OWN_VARIABLES) for name in names)
    facts = {
        "chip_count": len(chips),
        "generation": ", ".join(sorted({generations[chip.device] for chip in chips})),
        "nodes": nodes if chips else [],
        **(environment if chips or is_own else {}),
    }
    devices = tuple(
        pci_record(host, chip, "tpu", index, f"TPU {generations[chip.device]}")
        for index, chip in enumerate(chips)
    )
    reasons = all_denied(host, nodes)
    if not chips:
        reasons = (Reason("no-device", "libtpu is installed, and no TPU is on PCI"),)
    elif not nodes and host.listdir("/dev"):
        message = "TPU chips are on PCI, but neither /dev/accel* nor /dev/vfio/* exists"
        hint = "a container needs --privileged, or the nodes themselves"
        reasons = (Reason("no-driver", message, hint),)
    if not libraries:
        reasons += (absent(host, "libtpu.so", (_PATH,)),)
    version = wheel.version if wheel else ""
    return Finding(tuple(libraries), devices, nonempty(facts), version=version, reasons=reasons)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version of the PJRT interface, which takes no chip."""
    opened.GetPjrtApi.restype = ctypes.c_void_p
    table = opened.GetPjrtApi()
    if not table:
        raise NotUsable("call-failed", "GetPjrtApi returned no table of functions")
    words = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))
    if words[0] < (_VERSION_AT + 1) * 8:
        return Answer(library)
    numbers = ctypes.cast(table + _VERSION_AT * 8, ctypes.POINTER(ctypes.c_int))
    return Answer(library, facts={"pjrt_api_version": f"{numbers[0]}.{numbers[1]}"})
