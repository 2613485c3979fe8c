"""Who computes an attention problem: every file of kernels/ is asked, in the order that was set.

The order is torch's priority order of kinds; among backends of one kind the higher rank comes first.
A switch that is off is a reason like any other, so a decision has them all.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType

from mlbackends.model import registry
from mlbackends.model.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, Decision, Verdict
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends.sdpa.switches import ORDER, SWITCHES, allowed, priority_order
from mlbackends.switches import store

OPERATION = "scaled_dot_product_attention"
_DEPRIORITIZED = "cuda.cudnn_sdp_deprioritized"
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
    """Return one of every attention backend that kernels/ and other distributions bring, by name."""
    store.changed()  # what was decided among others is decided anew
    taken = map(_taken, registry.names("mlbackends_kernels"))
    return tuple(each for each in taken if isinstance(each, AttentionBackend))


def unloaded() -> tuple[Verdict, ...]:
    """Return a verdict for each entry of kernels/ that brings no backend, with the reason."""
    taken = map(_taken, registry.names("mlbackends_kernels"))
    return tuple(each for each in taken if isinstance(each, Verdict))


def choose(
    problem: AttentionProblem,
    *,
    among: Sequence[AttentionBackend] | None = None,
    environment: Environment | None = None,
    here: bool = True,
) -> Decision:
    """Ask every backend, and return who is the first that can, with what all of them said.

    among: the backends to ask; left out, all that there are. environment: what holds where it is to
    run; left out, this process. here: whether it is to run on this installation, so that a missing
    package counts. An addition that cannot be imported has a verdict behind all others.
    """
    verdicts = tuple(
        Verdict(backend.name, backend.answers_to.name, _reasons(backend, problem, here))
        for backend in in_order(problem, backends() if among is None else among, environment)
    )
    if among is None:
        verdicts += unloaded()
    chosen = next((verdict.backend for verdict in verdicts if verdict.usable), "")
    return Decision(problem, chosen, verdicts)


def chosen_backend(problem: AttentionProblem) -> AttentionBackend:
    """Return the backend that computes a problem here, asking no further than the first that can.

    Raises NoBackend, with the reasons of all, where none can.
    """
    for backend in in_order(problem, backends()):
        if not _reasons(backend, problem, here=True):
            return backend
    raise nobody(choose(problem))


def lasting_choice(problem: AttentionProblem) -> AttentionBackend | None:
    """Return `chosen_backend` if until a switch is written no other can be, whatever the sizes.

    None where a backend before it might take other sizes, is missing a part, or is kept out by
    python_native.
    """
    for backend in in_order(problem, backends()):
        if switch_reasons(backend.answers_to) or backend.refuses_every_size(problem):
            continue
        return None if _reasons(backend, problem, here=True) else backend
    return None


def nobody(decision: Decision) -> NoBackend:
    """Return what to raise where nobody can; torch's words for it, and ours."""
    asked = [
        {reason.code for reason in verdict.reasons}
        for verdict in decision.verdicts
        if not any(reason.code == "wrong-device" for reason in verdict.reasons)
    ]
    if asked and all("switched-off" in codes for codes in asked):
        said = (
            "No viable backend for scaled_dot_product_attention was found. This is likely due to"
            " turning off both the math kernel and the fused kernels."
        )
    else:
        said = "No available kernel. Aborting execution."
    told = "".join(
        f"\n  {verdict.backend}: {'; '.join(reason.message for reason in verdict.reasons)}"
        for verdict in decision.verdicts
    )
    hints = dict.fromkeys(reason.hint for reason in decision.reasons if reason.hint)
    hint = "; ".join(hints)
    return NoBackend(
        f"{said}{told}\n  hint: {hint}" if hint else said + told, decision.reasons, hint
    )


def in_order(
    problem: AttentionProblem,
    among: Sequence[AttentionBackend],
    environment: Environment | None = None,
) -> list[AttentionBackend]:
    """Return backends in the order in which they are to be asked."""
    kinds = effective_order(problem, among, environment)
    return sorted(
        among, key=lambda backend: (kinds.index(backend.answers_to), -backend.rank, backend.name)
    )


def effective_order(
    problem: AttentionProblem,
    among: Sequence[AttentionBackend],
    environment: Environment | None = None,
) -> tuple[SDPBackend, ...]:
    """Return the order of kinds that counts for a problem.

    Where nobody set it, cuDNN comes first on GPUs of capability 9 and 10 with a cuDNN newer than
    9.15.0, unless TORCH_CUDNN_SDPA_DEPRIORITIZED is 1. torch changes its order so at its first call;
    here the order stays what was set, and this is what counts.
    """
    if any(backend.answers_to is SDPBackend.CUDNN_ATTENTION for backend in among):
        return torch_order(problem, environment)
    return priority_order()


def torch_order(
    problem: AttentionProblem, environment: Environment | None = None
) -> tuple[SDPBackend, ...]:
    """Return the order of kinds in which torch asks its own kernels; see `effective_order`."""
    order = priority_order()
    cudnn = SDPBackend.CUDNN_ATTENTION
    if (
        problem.capability is None
        or problem.capability[0] not in (9, 10)
        or store.origin(ORDER) != "default"
        or store.read(_DEPRIORITIZED)
    ):
        return order
    if environment is None:
        from mlbackends.sdpa.rules.environment import environment_here

        environment = environment_here(problem)
    if environment.cudnn_version <= 91500:
        return order
    return (cudnn, *(kind for kind in order if kind is not cudnn))


def switch_reasons(kind: SDPBackend) -> tuple[Reason, ...]:
    """Return why a kind may not run by its switch; () if it may."""
    if allowed(kind):
        return ()
    name = SWITCHES[kind]
    where = _ORIGINS.get(store.origin(name), "by default")
    said = f"{_TITLES[kind]} is switched off: {name} was set {where}"
    return (Reason("switched-off", said, f"switch {name} on"),)


def _reasons(
    backend: AttentionBackend, problem: AttentionProblem, here: bool
) -> tuple[Reason, ...]:
    found = (
        *switch_reasons(backend.answers_to),
        *_filter_reasons(backend, problem),
        *backend.unsupported_reasons(problem),
    )
    return found or (backend.missing_parts() if here else ())


def _filter_reasons(backend: AttentionBackend, problem: AttentionProblem) -> Iterator[Reason]:
    """Yield why python_native keeps a backend out that is written in one of its languages."""
    if not backend.dsl:
        return
    from mlbackends.python_native import filters

    key = filters.key_of_platform(problem.platform)
    why = filters.why_disabled(backend.dsl, OPERATION, key)
    if why:
        yield Reason("switched-off", f"{backend.name} is switched off: {why}")


def _taken(name: str) -> AttentionBackend | Verdict:
    """Return the backend that an entry of kernels/ brings, or a verdict that says why there is none."""
    entry = registry.load("mlbackends_kernels", name)
    try:
        kind = _in_entry(entry)
        if kind is not None:
            return kind()
        _raise_its_error(entry)
        said = f"the addition {name} cannot be used: it holds no AttentionBackend of its own"
    except Exception as error:  # noqa: BLE001  foreign code; what it raises stands in its verdict
        said = f"the addition {name} cannot be used: {type(error).__name__}: {error}"
    hint = f"mend or remove the package that adds {name} to mlbackends_kernels"
    return Verdict(name, SDPBackend.ERROR.name, (Reason("probe-error", said, hint),))


def _raise_its_error(entry: object) -> None:
    """Raise what importing an entry raised; `registry.load` keeps it in a module that it made up."""
    if isinstance(entry, ModuleType) and entry.__spec__ is None and hasattr(entry, "find"):
        entry.find(None)


def _in_entry(entry: object) -> type[AttentionBackend] | None:
    """Return the backend that a registry's entry holds: the class itself, or a module's own one."""
    if isinstance(entry, type):
        return entry if issubclass(entry, AttentionBackend) else None
    for thing in vars(entry).values():
        if isinstance(thing, type) and issubclass(thing, AttentionBackend) and _is_of(thing, entry):
            return thing
    return None


def _is_of(backend: type[AttentionBackend], module: object) -> bool:
    """Tell a module's own backend from one that it merely imports."""
    return backend.__module__ == getattr(module, "__name__", "")
