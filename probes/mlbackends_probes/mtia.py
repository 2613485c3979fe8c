"""Meta MTIA: Meta's training and inference accelerator.

Finds:    nothing by itself: its driver and runtime are not public, so no file, no PCI name and no
          library of theirs is documented that could be looked for.
Caveats:  only `torch.mtia`, in a build of PyTorch that Meta makes for it, can tell. Without a torch, and with
          one of the public builds alone, it is absent: nothing here could use it.
Source:   PyTorch documentation, torch.mtia: "implemented out of the tree, only interfaces are defined here".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution, distributions
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding, Presence

GROUP = "accelerator"
FACTS = (Fact("torch_version", str, "The installed torch, which alone could tell of MTIA."),)
_PUBLIC = pattern(r"[0-9.]+(?:rc[0-9]+)?(?:\.dev[0-9]+)?(?:\+(?:cpu|cu[0-9]+|rocm[0-9.]+|xpu))?")
"""The versions of PyTorch's own wheels, at PyPI and download.pytorch.org."""


def find(host: Host) -> Finding:
    """Say what could tell of MTIA here."""
    torch = distribution(host, "torch")
    facts: dict[str, FactValue] = {"torch_version": torch.version} if torch else {}
    is_public = torch is None or _PUBLIC.fullmatch(torch.version)
    if is_public and not any("mtia" in name for name in distributions(host)):
        build = (
            f"torch {torch.version} is a public build, without it" if torch else "no torch is here"
        )
        reason = Reason("not-found", f"only a build of torch that Meta makes drives MTIA: {build}")
        return Finding(facts=facts, presence=Presence.ABSENT, reasons=(reason,))
    message = "MTIA has no public driver files to look for; only torch.mtia could tell"
    hint = "run: python -c 'import torch; print(torch.mtia.is_available())'" if torch else ""
    return Finding(facts=facts, reasons=(Reason("only-the-framework-knows", message, hint),))
