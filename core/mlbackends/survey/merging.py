"""Merge what a probe found in files with what its opened libraries answered, into one report."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.isolation.protocol import Reply
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

#: What a library that was not opened answers.
_NO_ANSWER = Answer(Library("", ""))
#: Reasons that leave open whether a thing is there.
_UNDETERMINED = ("only-the-framework-knows", "not-answering")


def merged(
    name: str, finding: Finding, replies: Mapping[str, Reply], depth: Presence, has_check: bool
) -> ProbeReport:
    """Return a probe's report. replies: those of the child, by the library's path.

    has_check: whether the probe's package can be made to compute.
    """
    opened = [
        _opened(library, reply, _unchecked(name, library, has_check, depth))
        if (reply := replies.get(library.path))
        else library
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
    devices = _merged_devices(finding.devices, answer.devices)
    facts = {**finding.facts, **answer.facts}
    presence: Presence | None = finding.presence or _highest(name, opened, devices, finding)
    reasons = _reasons_against(presence, finding, speaker)
    version = (speaker.version if speaker else "") or finding.version
    version = "" if presence is Presence.ABSENT else version
    failures = [reply.failure for reply in replies.values() if reply.failure]
    failure = Failure("a probe failed in the child", failures[0]) if failures else None
    if presence is Presence.FOUND and not (facts or libraries or devices or version):
        presence = None
        failure = failure or Failure("none of what it reads is here, or makes sense")
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


def _opened(library: Library, reply: Reply, unchecked: Reason | None) -> Library:
    """Return a library as its reply describes it. unchecked: why it is not on the last level, if it opens."""
    reason = reply.reason
    if not reason and reply.presence is Presence.LOADABLE:
        reason = unchecked
    answered = reply.answer.library if reply.answer else library
    return replace(answered, presence=reply.presence, reasons=(reason,) if reason else ())


def _unchecked(name: str, library: Library, has_check: bool, depth: Presence) -> Reason | None:
    """Return why a library that opens was not made to compute, though that was wanted."""
    if depth is not Presence.USABLE:
        return None
    if has_check:
        message = f"it opens and answers; `backends info {name}` imports it and computes"
        return Reason("not-computed", message)
    message = f"it opens and answers; no check here computes with {library.name}"
    return Reason("no-use-check", message)


def _answer_of(library: Library, replies: Mapping[str, Reply]) -> Answer:
    reply = replies.get(library.path)
    return reply.answer if reply and reply.answer else _NO_ANSWER


def _highest(
    name: str, libraries: Sequence[Library], devices: Sequence[Device], finding: Finding
) -> Presence:
    """Return the highest level among devices and the copies that no other copy shadows."""
    own = [library for library in libraries if library.name == name] or libraries
    levels = [library.presence for library in own if library.wins or not library.wins_because]
    levels += [device.presence for device in devices]
    # Facts alone mean that the thing is present, unless a reason is against it.
    has_facts = bool((finding.facts or finding.version) and not finding.reasons)
    default = Presence.FOUND if has_facts else Presence.ABSENT
    return max(levels, key=lambda presence: presence.level, default=default)


def _reasons_against(
    presence: Presence | None, finding: Finding, speaker: Library | None
) -> tuple[Reason, ...]:
    """Return why it is not on the next level; none, whatever `find` saw, if it was seen to work."""
    if presence is Presence.USABLE:
        return ()
    added = (
        [reason for reason in speaker.reasons if reason not in finding.reasons] if speaker else ()
    )
    return (*finding.reasons, *added)


def _merged_devices(found: tuple[Device, ...], opened: tuple[Device, ...]) -> tuple[Device, ...]:
    """Merge the devices of files with those of a library, whose values take precedence."""
    merged_devices = []
    left = list(found)
    for device in opened:
        match = next((candidate for candidate in left if _is_match(candidate, device)), None)
        if match is not None:
            left.remove(match)
            filled = {
                name: getattr(match, name)
                for name in Device.__struct_fields__
                if not getattr(device, name) and getattr(match, name) not in (None, "", ())
            }
            filled["facts"] = {**match.facts, **device.facts}
            filled["volatile"] = {**match.volatile, **device.volatile}
            device = replace(device, **filled)
        merged_devices.append(device)
    return (*merged_devices, *left)


def _is_match(one: Device, other: Device) -> bool:
    """Return whether two records are of one device: by address, or by number if one has no address."""
    if one.kind == other.kind and one.pci_address and other.pci_address:
        return one.pci_address == other.pci_address
    return one.kind == other.kind and one.index == other.index
