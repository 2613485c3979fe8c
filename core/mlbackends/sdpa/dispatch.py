"""Which backend computes an attention problem: all of kernels/ are asked, in the order that was set.

torch's priority order of kinds comes first, then ORDER. A switch that is off is a reason like any other,
so a decision has them all.
"""

from collections.abc import Sequence
from functools import cache

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, Decision, Verdict
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.rules.environment import Environment, environment_here
from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends.sdpa.switches import PRIORITY_ORDER, SWITCHES, allowed, priority_order
from mlbackends.switches import store

#: The order of backends of one kind; those of other distributions follow, by name.
ORDER = ("flash_cpu", "efficient_cuda", "math_cuda", "math")

_PLACES = {name: place for place, name in enumerate(ORDER)}
_TITLES = {
    SDPBackend.FLASH_ATTENTION: "flash attention",
    SDPBackend.EFFICIENT_ATTENTION: "memory-efficient attention",
    SDPBackend.MATH: "the plain formula",
    SDPBackend.CUDNN_ATTENTION: "cuDNN's attention",
    SDPBackend.OVERRIDEABLE: "a plug-in's attention",
}
_ORIGINS = {
    "set": "in this program",
    "environment": "in the environment",
    "file": "in a file of switches",
}


@cache
def backends() -> tuple[AttentionBackend, ...]:
    """Return one of every attention backend of kernels/ and of other distributions, by name."""
    loaded = map(_load, registry.names(registry.KERNELS))
    return tuple(each for each in loaded if isinstance(each, AttentionBackend))


def unloaded() -> tuple[Verdict, ...]:
    """Return a verdict for each entry of kernels/ that brings no backend, with the reason."""
    loaded = map(_load, registry.names(registry.KERNELS))
    return tuple(each for each in loaded if isinstance(each, Verdict))


def choose(
    problem: AttentionProblem,
    *,
    among: Sequence[AttentionBackend] | None = None,
    environment: Environment | None = None,
    here: bool = True,
) -> Decision:
    """Return the first backend that supports a problem, and the verdicts of all.

    among: the backends to ask; left out, all. environment: that of the process which computes; left out,
    this one. here: whether it is to run on this installation, so that a missing package counts. An
    addition that cannot be imported has a verdict behind all others.
    """
    verdicts = tuple(
        _verdict(backend, problem, here)
        for backend in in_order(problem, backends() if among is None else among, environment)
    )
    if among is None:
        verdicts += unloaded()
    chosen = next((verdict.backend for verdict in verdicts if verdict.usable), "")
    return Decision(problem, chosen, verdicts)


def chosen_backend(problem: AttentionProblem) -> AttentionBackend:
    """Return the first backend that computes a problem here. Raises NoBackend, with the reasons of all."""
    for backend in in_order(problem, backends()):
        if not _reasons(backend, problem, here=True):
            return backend
    raise no_backend(choose(problem))


def no_backend(decision: Decision) -> NoBackend:
    """Return the exception of a problem without a backend; in torch's words and ours."""
    codes = [{reason.code for reason in verdict.reasons} for verdict in decision.verdicts]
    codes = [each for each in codes if "wrong-device" not in each]
    message = "No available kernel. Aborting execution."
    if codes and all("switched-off" in each for each in codes):
        message = (
            "No viable backend for scaled_dot_product_attention was found. This is likely due to"
            " turning off both the math kernel and the fused kernels."
        )
    for verdict in decision.verdicts:
        reasons = "; ".join(reason.message for reason in verdict.reasons)
        message += f"\n  {verdict.backend}: {reasons}"
    hint = "; ".join(dict.fromkeys(reason.hint for reason in decision.reasons if reason.hint))
    return NoBackend(f"{message}\n  hint: {hint}" if hint else message, decision.reasons, hint)


def in_order(
    problem: AttentionProblem,
    among: Sequence[AttentionBackend],
    environment: Environment | None = None,
) -> list[AttentionBackend]:
    """Return backends in the order in which they are asked."""
    kinds = priority_order()
    if any(backend.answers_to is SDPBackend.CUDNN_ATTENTION for backend in among):
        kinds = torch_order(problem, environment)

    def place(backend: AttentionBackend) -> tuple[int, int, str]:
        kind = kinds.index(backend.answers_to)
        return kind, _PLACES.get(backend.name, len(ORDER)), backend.name

    return sorted(among, key=place)


def torch_order(
    problem: AttentionProblem, environment: Environment | None = None
) -> tuple[SDPBackend, ...]:
    """Return the order of kinds in which torch asks its own kernels.

    Where nobody set it, cuDNN comes first on GPUs of capability 9 and 10 with a cuDNN newer than
    9.15.0, unless TORCH_CUDNN_SDPA_DEPRIORITIZED is 1. torch changes its order so at its first call;
    here the switch keeps the order that was set, and this is what counts.
    """
    order = priority_order()
    cudnn = SDPBackend.CUDNN_ATTENTION
    if (
        problem.capability is None
        or problem.capability[0] not in (9, 10)
        or store.origin(PRIORITY_ORDER) != "default"
        or store.read("cuda.cudnn_sdp_deprioritized")
        or (environment or environment_here(problem)).cudnn_version <= 91500
    ):
        return order
    return (cudnn, *(kind for kind in order if kind is not cudnn))


def switch_reasons(kind: SDPBackend) -> tuple[Reason, ...]:
    """Return why the switch of a kind forbids it; () if it is on."""
    if allowed(kind):
        return ()
    name = SWITCHES[kind]
    where = _ORIGINS.get(store.origin(name), "by default")
    message = f"{_TITLES[kind]} is switched off: {name} was set {where}"
    return (Reason("switched-off", message, f"switch {name} on"),)


def _reasons(
    backend: AttentionBackend, problem: AttentionProblem, here: bool
) -> tuple[Reason, ...]:
    reasons = switch_reasons(backend.answers_to)
    reasons = (*reasons, *backend.unsupported_reasons(problem))
    reasons = reasons or (backend.missing_parts() if here else ())
    return reasons or backend.library_answer(problem, here).reasons


def _verdict(backend: AttentionBackend, problem: AttentionProblem, here: bool) -> Verdict:
    reasons = _reasons(backend, problem, here)
    note = "" if reasons else backend.library_answer(problem, here).note
    return Verdict(backend.name, backend.answers_to.name, reasons, note)


def _load(name: str) -> AttentionBackend | Verdict:
    """Return the backend of an entry of kernels/, or a verdict that says why there is none."""
    entry: object = registry.load(registry.KERNELS, name)
    error = registry.import_error(entry)
    why = f"{type(error).__name__}: {error}" if error else "it holds no AttentionBackend of its own"
    if error is None and (found := backend_class(entry)):
        try:
            if found.name == name:
                return found()
            why = (
                f"its backend is named {found.name!r}; it must be named as the file or entry point"
            )
        except Exception as raised:  # noqa: BLE001  foreign code; what it raises is the reason
            why = f"{type(raised).__name__}: {raised}"
    reason = Reason(
        "probe-error",
        f"the addition {name} cannot be used: {why}",
        f"mend or remove the package that adds {name} to mlbackends.kernels",
    )
    return Verdict(name, SDPBackend.ERROR.name, (reason,))


def backend_class(entry: object) -> type[AttentionBackend] | None:
    """Return the backend of a registry's entry: the class itself, or the one that a module defines."""
    for thing in (entry,) if isinstance(entry, type) else vars(entry).values():
        if (
            isinstance(thing, type)
            and issubclass(thing, AttentionBackend)
            and (thing is entry or thing.__module__ == getattr(entry, "__name__", ""))
        ):
            return thing
    return None
