"""Merge what a probe found in files with what its opened libraries answered, into one report."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.model.records import (
    Answer,
    Device,
    Failure,
    Finding,
    Library,
    Presence,
    ProbeReport,
    speaking_copy,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlbackends.isolation.protocol import Reply

#: What a library that was not opened answers.
_NO_ANSWER = Answer(Library("", ""))
#: Reasons that leave open whether a thing is there.
_UNDETERMINED = ("only-the-framework-knows", "not-answering")


def merged(
    name: str, finding: Finding, replies: "Mapping[str, Reply]", depth: Presence, has_check: bool
) -> ProbeReport:
    """Return a probe's report. replies: those of the child, by the library's path.

    has_check: whether the probe's package can be made to compute.
    """
    opened = [
        _opened(name, library, reply, depth, has_check) if (reply := replies.get(library.path)) else library
        for library in finding.libraries
    ]
    speaker = speaking_copy(name, opened)
    answer = _answer_of(speaker, replies) if speaker else _NO_ANSWER
    libraries = tuple(
        library
        if library is speaker
        else replace(library, facts={**library.facts, **_answer_of(library, replies).facts})
        for library in opened
    )
    # Merge the devices of files with those of a library, whose values take precedence.
    merged_devices = []
    left = list(finding.devices)
    for device in answer.devices:
        for match in left:
            # One device has one address; if one of the records has none, the number decides.
            has_both = match.pci_address and device.pci_address
            field = "pci_address" if has_both else "index"
            if match.kind != device.kind or getattr(match, field) != getattr(device, field):
                continue
            left.remove(match)
            filled = {
                name: getattr(match, name)
                for name in Device.__struct_fields__
                if not getattr(device, name) and getattr(match, name) not in (None, "", ())
            }
            filled["facts"] = {**match.facts, **device.facts}
            filled["volatile"] = {**match.volatile, **device.volatile}
            device = replace(device, **filled)
            break
        merged_devices.append(device)
    devices = (*merged_devices, *left)
    facts = {**finding.facts, **answer.facts}
    presence: Presence | None = finding.presence
    if presence is None:  # the highest among devices and the copies that no other copy shadows
        own = [library for library in opened if library.name == name] or opened
        levels = [library.presence for library in own if library.wins or not library.wins_because]
        levels += [device.presence for device in devices]
        # Facts alone mean that the thing is present, unless a reason is against it.
        has_facts = bool((finding.facts or finding.version) and not finding.reasons)
        default = Presence.FOUND if has_facts else Presence.ABSENT
        presence = max(levels, key=lambda each: each.level, default=default)
    reasons = finding.reasons
    if speaker:
        reasons += tuple(reason for reason in speaker.reasons if reason not in reasons)
    if presence is Presence.USABLE:  # it was seen to work, whatever `find` saw
        reasons = ()
    version = (speaker.version if speaker else "") or finding.version
    version = "" if presence is Presence.ABSENT else version
    failures = [reply.failure for reply in replies.values() if reply.failure]
    failure = Failure("a probe failed in the child", failures[0]) if failures else None
    if presence is Presence.FOUND and not (facts or libraries or devices or version):
        presence = None
        failure = failure or Failure("none of what it reads exists or is valid")
    elif any(reason.code in _UNDETERMINED for reason in reasons):
        presence = None
    return ProbeReport(
        presence=presence,
        version=version,
        facts=facts,
        libraries=libraries,
        devices=devices,
        reasons=reasons,
        warnings=finding.warnings + answer.warnings,
        failure=failure,
    )


def _opened(name: str, library: Library, reply: "Reply", depth: Presence, has_check: bool) -> Library:
    """Return a library as its reply describes it, with the reason if it opens and was not made to compute."""
    reason = reply.reason
    if not reason and reply.presence is Presence.LOADABLE and depth is Presence.USABLE:
        code, why = "no-use-check", f"no check here computes with {library.name}"
        if has_check:
            code, why = "not-computed", f"`backends info {name}` imports it and computes"
        reason = Reason(code, f"it opens and answers; {why}")
    answered = reply.answer.library if reply.answer else library
    return replace(answered, presence=reply.presence, reasons=(reason,) if reason else ())


def _answer_of(library: Library, replies: "Mapping[str, Reply]") -> Answer:
    reply = replies.get(library.path)
    return reply.answer if reply and reply.answer else _NO_ANSWER
