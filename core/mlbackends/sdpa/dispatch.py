"""Choose the backend that computes an attention problem: the first that supports it.

torch's priority order of kinds comes first, then ORDER. A switch that is off is a reason like any other.
"""

from collections.abc import Sequence
from functools import cache

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, Decision, Verdict
from mlbackends.sdpa import calls
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.rules.cuda import prefers_cudnn
from mlbackends.sdpa.rules.environment import Environment, environment_here
from mlbackends.sdpa.switches import PRIORITY_ORDER, SWITCHES, SDPBackend, allowed, priority_order
from mlbackends.switches import store

#: The order of backends of the same kind; those of other distributions follow, by name.
ORDER = ("flash_cpu", "efficient_cuda", "math")

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
    """Return every attention backend, those of other distributions included, by name."""
    loaded = map(_load, registry.names(registry.KERNELS))
    return tuple(entry for entry in loaded if isinstance(entry, AttentionBackend))


def unloaded() -> tuple[Verdict, ...]:
    """Return a verdict for each entry of kernels/ that defines no backend, with the reason."""
    loaded = map(_load, registry.names(registry.KERNELS))
    return tuple(entry for entry in loaded if isinstance(entry, Verdict))


def choose(
    problem: AttentionProblem,
    *,
    among: Sequence[AttentionBackend] | None = None,
    environment: Environment | None = None,
    here: bool = True,
) -> Decision:
    """Return the first backend that supports a problem, and the verdicts of all.

    among: the backends to ask, None for all. environment: that of the process that computes, None for this
    one. here: whether the problem will run on this installation, so that missing packages count. The verdicts
    of additions that cannot be imported come last.
    """
    verdicts = []
    for backend in in_order(problem, backends() if among is None else among, environment):
        reasons, note, undecided = _reasons(backend, problem, here), "", False
        missing: tuple[Reason, ...] = ()
        if not reasons:
            _, note, undecided = backend.library_answer(problem, here)
            # What has no remedy, such as a driver, belongs to the device.
            missing = () if here else tuple(part for part in backend.missing_parts() if part.hint)
        kind = backend.answers_to.name
        verdicts.append(Verdict(backend.name, kind, reasons, note, missing, undecided))
    if among is None:
        verdicts += unloaded()
    chosen = next((verdict.backend for verdict in verdicts if verdict.usable), "")
    return Decision(problem, chosen, tuple(verdicts))


def chosen_backend(
    problem: AttentionProblem, direction: str = "forward", first: str = ""
) -> AttentionBackend:
    """Return the first backend that computes a problem here, and note it as the one of the last call.

    first: the name of a backend to take if it supports the problem, even if it is switched off. Raises
    NoBackend, with the reasons of all.
    """
    for backend in backends() if first else ():
        if backend.name == first and not backend.unsupported_reasons(problem):
            calls.note(backend.name, problem.query, direction=direction)
            return backend
    refusals: list[tuple[str, tuple[Reason, ...]]] = []
    for backend in in_order(problem, backends()):
        reasons = _reasons(backend, problem, here=True)
        if not reasons:
            calls.note(backend.name, problem.query, refusals, direction)
            return backend
        if all(reason.code != "wrong-device" for reason in reasons):
            refusals.append((backend.name, reasons))
    raise no_backend(choose(problem))


def no_backend(decision: Decision) -> NoBackend:
    """Return the exception for a problem without a backend, in torch's words and ours."""
    codes = [{reason.code for reason in verdict.reasons} for verdict in decision.verdicts]
    codes = [known for known in codes if "wrong-device" not in known]
    message = "No available kernel. Aborting execution."
    if codes and all("switched-off" in known for known in codes):
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
    """Return the backends in the order in which they are asked."""
    with_cudnn = any(backend.answers_to is SDPBackend.CUDNN_ATTENTION for backend in among)
    kinds = torch_order(problem, environment) if with_cudnn else priority_order()

    def place(backend: AttentionBackend) -> tuple[int, int, str]:
        return kinds.index(backend.answers_to), _PLACES.get(backend.name, len(ORDER)), backend.name

    return sorted(among, key=place)


def torch_order(problem: AttentionProblem, environment: Environment | None = None) -> tuple[SDPBackend, ...]:
    """Return the order of kinds in which torch asks its own kernels.

    Unless an order was set, cuDNN comes first where `prefers_cudnn`, except where
    TORCH_CUDNN_SDPA_DEPRIORITIZED is 1. torch changes its order at its first call; here the switch keeps its
    value, and this function applies the change.
    """
    order = priority_order()
    cudnn = SDPBackend.CUDNN_ATTENTION
    if (
        problem.capability is None
        or problem.capability[0] not in (9, 10)
        or store.origin(PRIORITY_ORDER) != "default"
        or store.read("cuda.cudnn_sdp_deprioritized")
        or not prefers_cudnn(problem, environment or environment_here(problem))
    ):
        return order
    return (cudnn, *(kind for kind in order if kind is not cudnn))


def switch_reasons(kind: SDPBackend) -> tuple[Reason, ...]:
    """Return why a kind is switched off; () if it is on."""
    if allowed(kind):
        return ()
    name = SWITCHES[kind]
    where = _ORIGINS.get(store.origin(name), "by default")
    message = f"{_TITLES[kind]} is switched off: {name} was set {where}"
    return (Reason("switched-off", message, f"switch {name} on"),)


def _reasons(backend: AttentionBackend, problem: AttentionProblem, here: bool) -> tuple[Reason, ...]:
    reasons = switch_reasons(backend.answers_to)
    reasons = (*reasons, *backend.unsupported_reasons(problem))
    reasons = reasons or (backend.missing_parts() if here else ())
    return reasons or backend.library_answer(problem, here).reasons


def _load(name: str) -> AttentionBackend | Verdict:
    """Return the backend of an entry of kernels/, or a verdict with the reason for its absence."""
    entry: object = registry.load(registry.KERNELS, name)
    error = registry.import_error(entry)
    why = f"{type(error).__name__}: {error}" if error else "it defines no AttentionBackend"
    if error is None and (backend := backend_class(entry)):
        try:
            if backend.name == name:
                return backend()
            why = f"its backend is named {backend.name!r}, not as the file or entry point"
        except Exception as raised:  # noqa: BLE001  foreign code may raise anything
            why = f"{type(raised).__name__}: {raised}"
    reason = Reason(
        "probe-error",
        f"the addition {name} cannot be used: {why}",
        f"fix or remove the package that adds {name} to mlbackends.kernels",
    )
    return Verdict(name, SDPBackend.ERROR.name, (reason,))


def backend_class(entry: object) -> type[AttentionBackend] | None:
    """Return the backend class of a registry entry: the entry itself, or the class that a module defines."""
    for thing in (entry,) if isinstance(entry, type) else vars(entry).values():
        if (
            isinstance(thing, type)
            and issubclass(thing, AttentionBackend)
            and (thing is entry or thing.__module__ == getattr(entry, "__name__", ""))
        ):
            return thing
    return None
