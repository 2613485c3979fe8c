"""Meta MTIA: Meta's training and inference accelerator.

Finds:    nothing by itself: its driver and runtime are not public, so no file, no PCI name and no
          library of theirs is documented that could be looked for.
Caveats:  only `torch.mtia`, in Meta's own build of PyTorch, can detect it. Without torch, or with a public
          build, it is absent: nothing could use it.
Source:   PyTorch documentation, torch.mtia: "implemented out of the tree, only interfaces are defined here".
"""

from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution, distributions
from mlbackends.model.records import FactValue, Finding, Presence

GROUP = "accelerator"
#: The local versions of PyTorch's own wheels, at PyPI and download.pytorch.org, without numbers.
_PUBLIC = ("", "cpu", "cu", "rocm", "xpu")


def find(host: Host) -> Finding:
    """Report whether the installed torch could drive MTIA."""
    torch = distribution(host, "torch")
    facts: dict[str, FactValue] = {"torch_version": torch.version} if torch else {}
    number, _, build = torch.version.partition("+") if torch else ("0", "", "")
    release = number.partition(".dev")[0].replace("rc", ".", 1)
    is_public = dotted_numbers(release) and build.rstrip("0123456789.") in _PUBLIC
    if is_public and not any("mtia" in name for name in distributions(host)):
        detail = f"torch {torch.version} is a public build, without it" if torch else "torch is not installed"
        reason = Reason("not-found", f"only a build of torch that Meta makes drives MTIA: {detail}")
        return Finding(facts=facts, presence=Presence.ABSENT, reasons=(reason,))
    message = "MTIA has no public driver files to look for; only torch.mtia can detect it"
    hint = "run: python -c 'import torch; print(torch.mtia.is_available())'" if torch else ""
    return Finding(facts=facts, reasons=(Reason("only-the-framework-knows", message, hint),))
