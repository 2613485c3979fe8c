"""AWS Neuron: Inferentia and Trainium.

Finds:    Neuron devices on PCI, the neuron driver, /dev/neuron*, every libnrt, the wheels of the
          compiler, and the variables that choose cores.
Caveats:  nothing is computed: the runtime takes its cores for one process alone.
Source:   AWS Neuron driver, neuron_pci.c (PCI names); AWS Neuron documentation, "NeuronX runtime
          configuration".
"""

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import all_denied, device_nodes
from mlbackends.host.host import Host
from mlbackends.host.pci import of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.search import absent, absent_but_on_linux, libraries_named
from mlbackends.model.records import Finding, nonempty

GROUP = "accelerator"

_WHEELS = ("neuronx-cc", "libneuronxla", "torch-neuronx", "jax-neuronx", "neuron-cc")
_FOLDERS = ("/opt/aws/neuron/lib",)


def find(host: Host) -> Finding:
    """Look for devices, driver, nodes and every copy of the runtime."""
    libraries = libraries_named(host, "Neuron runtime", "libnrt", folders=_FOLDERS)
    names: dict[str, str] = table("host/pci_names")["neuron"]
    cards = [card for card in of_vendor(host, "1d0f") if card.device in names]
    if not libraries and not cards:
        return Finding(reasons=(absent_but_on_linux(host, "Neuron device on PCI and no libnrt.so"),))
    nodes = device_nodes(host, "neuron")
    wheels = [dist for name in _WHEELS if (dist := distribution(host, name))]
    facts = {
        "device_count": len(cards),
        "nodes": nodes,
        "driver_version": host.read("/sys/module/neuron/version", 256).strip(),
        "wheels": [f"{dist.name} {dist.version}" for dist in wheels],
        **steering(host, "neuron"),
    }
    devices = tuple(
        pci_record(host, card, "neuron", index, names[card.device]) for index, card in enumerate(cards)
    )
    reasons = all_denied(host, nodes)
    if not cards:
        message = "the Neuron runtime is installed, and no device is on PCI"
        reasons = (Reason("no-device", message),)
    elif not nodes and host.listdir("/dev"):
        message = "Neuron devices are on PCI, but /dev/neuron* does not exist"
        hint = "install the driver (aws-neuronx-dkms), or give the container --device=/dev/neuron0"
        reasons = (Reason("no-driver", message, hint),)
    if not libraries:
        reasons += (absent(host, "libnrt.so", folders=_FOLDERS),)
    return Finding(tuple(libraries), devices, nonempty(facts), reasons=reasons)
