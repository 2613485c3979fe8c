"""Meta MTIA: Meta's training and inference accelerator.

Finds:    nothing by itself: its driver and runtime are not public, so no file, no PCI name and no
          library of theirs is documented that could be looked for.
Caveats:  only `torch.mtia`, in a build of PyTorch that Meta makes for it, can tell.
Source:   PyTorch documentation, torch.mtia.
"""

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "accelerator"
FACTS = (Fact("torch_version", str, "The installed torch, which alone could tell of MTIA."),)


def find(host: Host) -> Finding:
    """Say what could tell of MTIA here."""
    torch = distribution(host, "torch")
    facts: dict[str, FactValue] = {"torch_version": torch.version} if torch else {}
    message = "MTIA has no public driver files to look for; only torch.mtia could tell"
    hint = "run: python -c 'import torch; print(torch.mtia.is_available())'" if torch else ""
    return Finding(facts=facts, reasons=(Reason("only-the-framework-knows", message, hint),))
