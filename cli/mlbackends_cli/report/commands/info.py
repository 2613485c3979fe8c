"""Show what this machine has, and what of it can be used.

Without NAME: one page. With names of probes, such as cpu, cudnn or openmp: everything about them,
including every copy of a library with its path, version, owner, how it was found and which one is loaded.

Each copy is opened and used in a separate child process, so that a crash or a hang affects only
its own line. The network is not used. Of a package the extension module is opened; what does not open, or
lacks a requirement, is imported. A package that you name, and each with --deep, is imported in a separate
process, within half a minute, and one that can compute (torch, jax) does so.

Examples:
  backends info                               what was found and what is broken, on one page
  backends info cuda_driver cudnn             everything about two things
  backends info --format json | jq .probes.cpu.facts.capability
  backends info --get cpu.capability
  backends info --require 'cudnn>=9.10' --require nvidia
  backends info --python ~/venv/bin/python    what that environment would get
  backends info --pid 4242                    what a running process has loaded
  backends info uses                          which BLAS and OpenMP each package uses
  backends info torch                         whether torch computes, on which devices
  backends info --device h100 --torch 2.13 --driver 570    a device that is not here, with versions
"""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, Incomplete
from mlbackends.base.writable import writable
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.host.redaction import names_of, redacted
from mlbackends.model.records import Presence, Report
from mlbackends.survey import dotted, survey
from mlbackends.survey.dotted import FIELDS, plain, undetermined
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import (
    COLOR,
    OUTPUT,
    PID,
    TIMEOUT,
    VERSIONS,
    completing,
    depth_option,
    format_option,
    option,
    root_option,
)
from mlbackends_cli.output import json_line, log, write
from mlbackends_cli.terminal import ProgressLine, page

if TYPE_CHECKING:
    from mlbackends.survey.requirement import Requirement


#: The ends of dotted names that are known only after a package has computed.
_COMPUTED = (
    ".presence", ".reasons", ".computed_on", ".simd_baseline", ".simd_found", ".simd_not_found",
    ".imports", ".accelerators", ".providers", ".devices", ".compute_types", ".offloads",
)  # fmt: skip


def _probes() -> tuple[str, ...]:
    return registry.names("mlbackends_probes")


def _complete_values(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    probe, dot, _ = incomplete.partition(".")
    names = _probes()
    if dot and probe in names:
        names = tuple(f"{probe}.{name}" for name in (*FIELDS, *facts_of(probe)))
    return completing(lambda: names)(ctx, param, incomplete)


@documented()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=completing(_probes))
@format_option("report", also=("frame", "slurm"), about="Output format of the report.")
@option("--get wanted DOTTED.NAME", "get", many=True, shell_complete=_complete_values)
@depth_option(None, "usable; with --pid only for versions; with --root found")
@option("--deep", "deep")
@option("--require requirements NAME[SPEC]", "info require", many=True, shell_complete=_complete_values)
@option("--strict", "Exit 3 if something could not be determined.")
@root_option()
@option("--python EXE", "python")
@PID
@option("--redact/--no-redact", "info redact")
@TIMEOUT
@option("--absent", "List what was not found, with a description of each, instead of the page.")
@option("--timing", "Show how long each probe took.")
@option("--device NAME", "Describe a device that this machine need not have, and what torch supports there.")
@VERSIONS
@OUTPUT
@COLOR
def command(
    names: tuple[str, ...],
    form: str,
    wanted: tuple[str, ...],
    depth: str | None,
    deep: bool,
    requirements: tuple[str, ...],
    strict: bool,
    root: str | None,
    python: str | None,
    pid: int | None,
    redact: bool | None,
    timeout: float,
    absent: bool,
    timing: bool,
    output: str,
    color: str,
    device: str | None,
    **versions: Any,
) -> int:
    if device is not None:
        from mlbackends_cli.report import described_device

        return described_device.show(device, versions, form, output, color)
    if any(versions.values()):
        raise BadInput("versions are to be assumed for a device", "add --device, such as --device h100")
    needs: list[Requirement] = []
    if requirements:
        from mlbackends.survey import requirement

        needs = [requirement.Requirement.parse(text) for text in requirements]
        for need in needs:
            requirement.check(need)
    if absent and (form != "table" or names):
        hint = "leave NAME out" if names else "the other formats list them with all the rest"
        raise BadInput("--absent is for the page of all that is here", hint)
    host = _host(root, python, pid, timeout)
    wanted = tuple(map(plain, wanted))
    probes = [*names, *(name.partition(".")[0] for name in wanted)]
    if probes:
        probes += [need.probe for need in needs]
    elif needs and not strict and form == "table" and not output:
        probes = [need.probe for need in needs]
    # Only what asks how far a package goes makes it compute.
    computing = {*names, *(need.probe for need in needs)}
    computing |= {name.partition(".")[0] for name in wanted if name.endswith(_COMPUTED)}
    own = {"frame": node_frames, "slurm": node_features}
    presence = Presence(depth or ("found" if root or absent else "usable"))
    with ProgressLine() as progress:
        report = survey(
            tuple(dict.fromkeys(probes)),
            host,
            presence,
            timeout=timeout,
            computing=_probes() if deep else computing,
            packages="found" if wanted else "imported" if deep else "opened",
            progress=progress,
            # Not in a thread: an interrupt amid an import leaves locks held for which another
            # thread's import would wait indefinitely.
            meanwhile=None if wanted or form in own else lambda: formats.load(form),
        )
    missing = [reason for need in needs if (reason := requirement.unmet(report, need))]
    hide = redact if redact is not None else not wanted
    shown = redacted(report, names_of(host)) if hide else report
    code = exits.NO if missing else exits.YES
    if wanted:
        values: list[str | None] = []
        for name in wanted:
            try:
                values.append(_bare(shown, name))
            except Incomplete as error:
                values.append(None)
                log(str(error))
                code = max(code, error.exit_code)
        if values != [None] * len(values):
            write("\n".join(value or "" for value in values), output)
    else:
        style = page(color, output, details=bool(names), timing=timing, absent=absent)
        text = own[form](shown) if form in own else formats.text(form, "report", shown, style)
        for_all = form not in own and formats.is_for_collectors(form)
        write(text, output, mode=0o644 if for_all else None)
    for reason in missing:
        log(f"requirement not met: {reason}")
    uncertain = undetermined(report)
    if strict and uncertain:
        log(f"could not be determined: {', '.join(uncertain)}")
        return exits.UNKNOWN
    return code


def _host(root: str | None, python: str | None, pid: int | None, timeout: float) -> Host:
    if python == "":
        raise BadInput("--python names no interpreter", "write --python venv/bin/python")
    if root and (pid or python):
        raise BadInput(
            "--root inspects a recorded machine; it cannot be combined with --pid or --python",
            "leave --root or the others out",
        )
    if not (pid or python):
        return Host(root or "/", timeout=timeout)
    from mlbackends.host.interpreter import of_process, query

    if pid and not python:
        return Host(pid=pid, python=of_process(pid, timeout), timeout=timeout)
    return Host(pid=pid, python=query(python or "", timeout), timeout=timeout)


def _bare(report: Report, name: str) -> str:
    """Return one value as a script wants it: text as it is, true and false, everything else as JSON.

    Raises Incomplete, with exit code 1 where the name is right and this machine has no such value.
    """
    facts = facts_of(name.partition(".")[0])
    try:
        value: Any = dotted.value(report, name, tuple(facts))
    except dotted.NoValue as missing:
        if missing.probe.failure:
            raise Incomplete(f"{name}: the probe failed: {missing.probe.failure.message}") from None
        why = f": {missing.probe.reasons[0].message}" if missing.probe.reasons else ""
        if missing.probe.presence is None or not dotted.is_certain(missing.probe):
            raise Incomplete(f"{name} could not be determined{why}") from None
        why = why or f"; {name.partition('.')[0]} is {missing.probe.presence}"
        error = Incomplete(f"{name} has no value here{why}")
        error.exit_code = exits.NO
        raise error from None
    return value if isinstance(value, str) else json_line(value)


def node_frames(report: Report) -> str:
    """Return the frames of an envelope with the report, whose own names may be redacted."""
    from mlbackends.fleet.frames import frames
    from mlbackends.fleet.payload import node_name
    from mlbackends.model.fleet import Envelope

    name = node_name() if report.root == "/" else "recorded-machine"
    data = msgspec.Raw(msgspec.json.encode(writable(report)))
    return "".join(f"{line}\n" for line in frames(Envelope(node=name, report=data)))


#: Prefixes of a node's features in Slurm, for values that are not clear by themselves.
_BEFORE = {
    "host.kernel_release": "kernel_",
    "host.libc_version": "libc_",
    "nvidia.driver_release": "nvidia_",
    "nvidia.cuda_version": "cuda_",
    "rocm.driver_version": "amdgpu_",
    "rocm.runtime_version": "rocm_",
    "fingerprint": "fp_",
}


def node_features(report: Report) -> str:
    """Return the features of a Slurm node, as its Feature= takes them: `srun --constraint=avx512`.

    avx512,zen_4,kernel_6.8.0_60_generic,libc_2.39,nvidia_580.95.05,cuda_13.0,8x_nvidia_h100_80gb_hbm3,fp_1_9a..
    """
    from mlbackends_cli.report.checks import features

    found = features(report)
    words = []
    for name, value in found.items():
        count = found.get(name.removesuffix(".name"), "")
        if name.endswith(".devices.name"):
            words += [value, f"{count}x_{value}"]
        elif not name.endswith(".devices"):
            words.append(_BEFORE.get(name, "") + value)
    return ",".join(text.lower().replace("-", "_") for text in words)
