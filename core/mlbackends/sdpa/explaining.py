"""Which backends, ours and torch's, support a problem on this machine or another; nothing is computed."""

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from msgspec import to_builtins

from mlbackends import cudnn
from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.base.errors import BadInput, UnknownName, shown
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.version import __version__
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.libraries.products import product_of
from mlbackends.model.explanation import (
    DEVICE_SCHEMA,
    SCHEMA,
    Bound,
    DescribedDevice,
    Explained,
    Explanation,
)
from mlbackends.model.problem import AttentionProblem, Verdict
from mlbackends.sdpa import named_devices, rules
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends, choose, switch_reasons, torch_order
from mlbackends.sdpa.named_devices import NamedDevice
from mlbackends.sdpa.problem_text import Wording, parse
from mlbackends.sdpa.rules.environment import (
    Environment,
    basis,
    environment_elsewhere,
    environment_here,
    installed_torch,
)


def explain(
    wordings: Sequence[Wording],
    names: Sequence[str] = (),
    torch: Sequence[str] = (),
    versions: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """Return the verdicts on problems, each with every torch that is named, or with the installed one.

    names: which of our backends to ask, () for all. versions: of cuDNN, CUDA, ROCm or the driver, to assume
    instead of the installed ones. Raises UnknownName for an unknown backend or device, BadInput for --device
    cuda without one and for what is no version.
    """
    for name, value in versions.items():
        if name != "cudnn" and not dotted_numbers(value):
            raise BadInput(
                f"--{name} {shown(value)} is not a version", "write it as numbers with dots, as 12.8"
            )
    among = chosen_backends(names)
    devices = {name: named_devices.device(name) for name in {wording.device for wording in wordings}}
    assumed = [{**versions, "torch": version} for version in torch] or [dict(versions)]
    problems = tuple(
        explained(wording, devices[wording.device], among, given) for wording in wordings for given in assumed
    )
    version = installed_torch()
    reasons = [basis(name, is_installed=False) for name in torch] or [basis(version)]
    is_given = bool(torch) or "cudnn" in versions
    if any(problem.torch_cudnn for problem in problems) and not is_given and not cudnn.version():
        reasons.append("cuDNN was not found, and that of torch's wheels is assumed")
    because = "; ".join(filter(None, reasons))
    return Explanation(SCHEMA, f"backends {__version__}", problems[0].torch, problems, because)


def described(place: NamedDevice, torch: Sequence[str], versions: Mapping[str, str]) -> DescribedDevice:
    """Return what is stated of a device, and what each torch chooses there. Raises as `explain` does."""
    product = product_of(place.device.name) if place.device.name else None
    stated = {name: value for name, value in to_builtins(product).items() if value} if product else {}
    problems = parse(f"--shape 2,8,1024,64 --dtype float16,bfloat16,float32 --device {place.name}")
    choices = explain(problems, ("math",), torch, versions)
    return DescribedDevice(DEVICE_SCHEMA, choices.tool, place.name, place.title, stated, choices)


def chosen_backends(names: Sequence[str]) -> tuple[AttentionBackend, ...] | None:
    """Return the backends with these names, None for all. Raises UnknownName."""
    by_name = {backend.name: backend for backend in backends()}
    for name in names:
        if name not in by_name:
            raise UnknownName("attention backend", name, tuple(by_name), "backends sdpa list")
    return tuple(by_name[name] for name in dict.fromkeys(names)) or None


def explained(
    wording: Wording,
    place: NamedDevice,
    among: Sequence[AttentionBackend] | None = None,
    versions: Mapping[str, str] = MappingProxyType({}),
) -> Explained:
    """Return the verdicts on one problem, with the versions of `explain`.

    among: our backends to ask, None for all.
    """
    problem = wording.problem(place.device)
    is_here = place.here and not versions
    environment = environment_here(problem) if is_here else environment_elsewhere(versions)
    decision = choose(problem, among=among, environment=environment, here=place.here)
    verdicts = torch_verdicts(problem, environment)
    unknown = rules.unrecorded(problem, environment)
    release = environment.cudnn_version if problem.platform == "cuda" else 0
    return Explained(
        text=wording.text,
        problem=problem,
        device=place.name,
        device_title=place.title,
        here=place.here,
        chosen=decision.chosen,
        verdicts=decision.verdicts,
        torch_chosen=next((verdict.backend for verdict in verdicts if verdict.usable), ""),
        torch_verdicts=verdicts,
        torch_unknown_reason=f"torch's rules for {unknown} are not known" if unknown else "",
        torch_cudnn=cudnn_release(release) if release else "",
        bound=bound(problem),
        torch=versions.get("torch", ".".join(map(str, environment.torch))),
        version_notes=rules.version_notes(problem, environment),
        wheel_has_code=None if is_here else rules.wheel_has_code(problem, environment),
    )


def bound(problem: AttentionProblem) -> Bound | None:
    """Return the least time on a product whose peak and bandwidth are stated."""
    product = product_of(problem.device.name) if problem.device.name else None
    if product is None or problem.is_nested:
        return None
    from mlbackends.sdpa.verify.problem_size import flops, least_bytes

    moved = least_bytes(problem)
    least = product.seconds(flops(problem), moved, problem.dtype)
    if least is None or not least[0]:
        return None
    # The scores are written, read by softmax, which writes the weights, and read for the second product.
    # What a cache can hold in between need not be moved.
    scores = prod(problem.leading_shape) * problem.query_length * problem.key_length
    size = scores * ITEM_BYTES[problem.dtype]
    beyond = max(size - max(product.l2 or size, product.l3 or 0), 0)
    math_bytes = 4 * beyond * (2 if problem.wants_gradient else 1)
    math = product.seconds(flops(problem), moved + math_bytes, problem.dtype)
    return Bound(product.name, *least, math_bytes, math[0] if math else least[0])


def torch_verdicts(problem: AttentionProblem, environment: Environment) -> tuple[Verdict, ...]:
    """Return the verdict of each of torch's own kernels, in torch's order; () for an unknown device.

    torch runs the first that supports the problem, and raises where none does.
    """
    if rules.unrecorded(problem, environment):
        return ()
    order = rules.CPU_ORDER
    if problem.platform != "cpu":
        order = torch_order(problem, environment)
    return tuple(
        Verdict(
            kind.name,
            kind.name,
            (*switch_reasons(kind), *rules.why_not(kind, problem, environment)),
            known_wrong=rules.wrong_numbers(kind, problem, environment),
        )
        for kind in order
        if rules.rules(kind, problem.platform, environment) is not None
    )
