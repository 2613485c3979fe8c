"""The grammar of MKL's lines: from a whole line to a record, or to None.

    MKL_VERBOSE oneMKL 2026 Update 2 Product build 20260915 for ... processors, Lnx 2.60GHz lp64 intel_thread
    MKL_VERBOSE SGEMM(T,N,512,512,512,0x7ffd,0x5579,512,...) 2.97ms CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2
    MKL_VERBOSE FFT: MAIN_DESC | dci1024:1:1 | THR_LIMIT = 1 | 0.00s CNR:OFF ...                    2019
    MKL_VERBOSE oneapi::mkl::blas::dgemm(0x7ffd,ColumnMajor,...,0) 0.00s GPU0        its time is not known
    MKL_VERBOSE WARNING: Unable to open verbose output file.
    Intel oneMKL ERROR: Parameter 9 was incorrect on entry to cblas_sgemm.

Behind the time is an open list of NAME:VALUE: the sequential and TBB layers have no TID
and NThr, domains add theirs (`NThr:1,BLAS:2`), clusters and devices more.

Source: MKL 2019.0 to oneMKL 2026.2 as they print; oneMKL Developer Guide, "Using oneMKL Verbose Mode".
"""

import re
from functools import lru_cache
from itertools import islice

from mlbackends.base.quantities import TIME_UNITS
from mlbackends.model.signature import RoutineSignature
from mlbackends.model.trace import AnyRecord, Header, Info, Message, MklCall
from mlbackends.tracing.formats.mkl.fft import is_absurd
from mlbackends.tracing.formats.mkl.routines import routine, split_arguments
from mlbackends.tracing.numbers import is_time, nanoseconds, whole_number

MARKER = "MKL_VERBOSE "
ERRORS = ("Intel MKL ERROR: ", "Intel oneMKL ERROR: ", "INTEL MKL ERROR: ", "INTEL oneMKL ERROR: ")
#: What mkl-service, in older NumPy of Intel's too, prints where it sees MKL_VERBOSE.
SERVICES = ("mkl-service + Intel(R) MKL: ", "Numpy + Intel(R) MKL: ")
FATAL = ("Intel MKL FATAL ERROR: ", "INTEL MKL FATAL ERROR: ", "INTEL oneMKL FATAL ERROR: ")

#: What begins a line of MKL or oneDNN: inside a line, it means that the line was torn.
_ANY = (MARKER, "MKL ERROR: ", "MKL FATAL ERROR: ", "_verbose,")

_HEADER = re.compile(
    r"(?P<library>Intel\(R\) MKL|Intel\(R\) oneAPI Math Kernel Library|oneMKL)(?: Version)? "
    r"(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.\d+)?(?: Update (?P<update>\d+))?(?: Patch (?P<patch>\d+))?"
    r"(?: (?P<product>.*?))?, (?P<system>\w+) (?P<frequency>\d+[.,]\d+)GHz"
    r"(?: (?P<interface>lp64|ilp64|cdecl))? (?P<threading>\w+)(?: [A-Za-z]\w*:\S+)*"
)
_PRODUCT = re.compile(
    r"(?P<product>\w+) build (?P<build>\d+) for (?P<architecture>.*? architecture) (?P<processor>.*)"
)
_CALL = re.compile(
    r"([A-Za-z_][\w:<>]*(?:\[[\w:<>,]*\])?)\((.*)\) "
    r"(?:([-+\s]*[\d.][\d.,_]*(?:[eE][-+]?[\d_]+)?\s*)(ns|us|ms|s) ?)?(.*)"
)
#: MKL up to 2020 prints 199 letters of a name with its arguments, and then no bracket.
_CUT_CALL = re.compile(r"(?=\S{199} )([A-Z_\d]+)\((\S+) (\d+[.,]\d+)(ns|us|ms|s) (CNR:.*)")
_OLD_FFT = re.compile(r"FFT: MAIN_DESC \| ([^|]*) \| (.*?) \| (\d+[.,]\d+)(ns|us|ms|s) (.*)")
_STATE_WORD = re.compile(r"(?:[A-Za-z_]\w*:\S+|GPU\d*)")
_DOMAINS = re.compile(r",(?=[A-Z]+:\d)")
_COUNTS = frozenset({"Dyn", "FastMM", "NThr"})
_COUNT = re.compile(r"[0-9]+(?:,|$)")
_BYTE_UNITS = {ord(unit[0]): TIME_UNITS[unit] for unit in ("ns", "us", "ms")}
_ADDRESS = re.compile(r"(?<!\d)0x[0-9a-fA-F]+")  # not the "0x6" in lengths such as 80x64
_ADDRESS_ARGUMENT = re.compile(rb"[,( ]0x[0-9a-fA-F]+")
_LONG = re.compile(r"-?\d{10,}")
_TRANSFORM = b"MKL_VERBOSE FFT"
#: What changes from one transform to the next: addresses, and what nobody set.
_UNSET = re.compile(rb"-\d{10,}|\d{14,}|(?<!\d)0x[0-9a-fA-F]+")
_STATE = re.compile(
    r" CNR:\S++ Dyn:\d(?: FastMM:\d)?+"
    r"(?: +TID:\d++ +NThr:\d++(?:,[A-Z]++:\d++)*+(?! +[A-Za-z_]\w*+(?:$|:))|(?! ))"
    r"(?=[^\d,])",
    re.DOTALL | re.ASCII,
)
_MOST_TRIED = 8


def parse(line: str) -> AnyRecord | None:
    """Return the record of one line, None if it is not one of MKL's from its first byte to its last."""
    marker = next(filter(line.startswith, (MARKER, *ERRORS, *FATAL, *SERVICES)), "")
    text = line[len(marker) :]
    if not marker or any(start in text for start in _ANY):
        return None
    if marker in SERVICES:
        return Info(tracer="mkl", raw=line, topic="mkl-service", text=text) if text else None
    if marker != MARKER:
        if len(text) < 2 or not text.endswith("."):
            return None
        origin = text[:-1].rpartition(" entry to ")[2] if " entry to " in text else ""
        return Message(tracer="mkl", raw=line, level="error", origin=origin, text=text)
    if text.startswith("WARNING: ") and len(text) > 9:
        return Message(tracer="mkl", raw=line, level="warning", text=text[9:])
    if call := _call(line, text):
        return call
    if text.startswith("Detected GPU"):
        return Info(tracer="mkl", raw=line, topic="gpu", text=text)
    header = _HEADER.fullmatch(text)
    if header is None:
        return None
    facts = header.groupdict("")
    major, minor, update = facts.pop("major"), facts.pop("minor"), facts.pop("update")
    facts["frequency"] = facts["frequency"].replace(",", ".")
    if product := _PRODUCT.fullmatch(facts["product"]):
        facts |= product.groupdict()
    version = f"{major}.{update or minor or 0}" + (f".{facts['patch']}" if facts["patch"] else "")
    return Header(tracer="mkl", raw=line, version=version, facts=facts)


def cut(line: bytes) -> tuple[tuple[bytes, bytes], float, None] | None:
    """Return what equal calls share, the time in nanoseconds, and no stamp.

    None for a line that only parse() can read. The line may have its end.
    """
    call, _, rest = line.rpartition(b") ")
    time, _, state = rest.partition(b"s ")
    try:  # whole seconds, as of 2019's transforms, are left to parse()
        duration = float(time[:-1]) * _BYTE_UNITS[time[-1]]
    except (KeyError, ValueError, IndexError):
        return None
    if not is_time(duration) or not (time[:1] + time[-2:-1]).isdigit():  # no blanks
        return None
    return (_without_addresses(call), state.rstrip(b"\r\n")), duration, None


@lru_cache(maxsize=20_000)
def _without_addresses(call: bytes) -> bytes:
    if call.startswith(_TRANSFORM):
        return _UNSET.sub(b"?", call)
    return _ADDRESS_ARGUMENT.sub(b",", call)


def split(line: str) -> tuple[AnyRecord, str] | None:
    """Return the record of the call that a line begins with and the program's text behind it, or None.

        ... CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2Epoch 1
        ... CNR:OFF Dyn:1 FastMM:1Epoch 1                     the sequential and TBB layers

    The state is an open list, so a text that would go on with it cannot be distinguished: more digits, a
    comma, a blank and a word that is the last or has a colon, and any blank where no NThr is. Such a line
    is read as longer than it is, or left unread.
    """
    for state in islice(_STATE.finditer(line), _MOST_TRIED):
        record = parse(line[: state.end()])
        if isinstance(record, MklCall):
            return record, line[state.end() :]
    return None


def _call(line: str, text: str) -> MklCall | None:
    if old := _OLD_FFT.fullmatch(text):
        name = "FFT"
        descriptor, limit, value, unit, tail = old.groups()
        arguments = f"{descriptor},{limit.replace(' ', '').replace('THR_LIMIT=', 'tLim:')}"
    elif found := _CALL.fullmatch(text) or _CUT_CALL.fullmatch(text):
        name, arguments, value, unit, tail = found.groups()
    else:
        return None
    state = _state(tail)
    duration = nanoseconds(value, TIME_UNITS[unit]) if value else None
    if not duration and "GPU" in tail:  # it had begun when this was printed
        value, duration = "", None
    if state is None or (duration is None and (value or not state[0])):
        return None
    values = _LONG.sub(
        lambda number: "?" if is_absurd(number[0]) else number[0], _ADDRESS.sub("0x*", arguments)
    )
    return MklCall(
        tracer="mkl",
        raw=line,
        thread=state[1],
        duration_ns=duration,
        signature=_signature(name, values, tuple(state[0].items())),
    )


@lru_cache(maxsize=20_000)
def _signature(name: str, arguments: str, state: tuple[tuple[str, str], ...]) -> RoutineSignature:
    """Return the one signature of all calls with these words."""
    tail = " ".join(f"{key}:{value}" if value else key for key, value in state)
    return RoutineSignature(
        tracer="mkl",
        key=f"{name}({arguments}) {tail}",
        routine=name,
        values=tuple(split_arguments(arguments, len(routine(name)[2]))),
        state=dict(state),
    )


@lru_cache(maxsize=4096)
def _state(tail: str) -> tuple[dict[str, str], int | None] | None:
    """Return the fields behind the time, and the OpenMP thread; None if they are truncated or invalid."""
    state: dict[str, str] = {}
    for word in filter(None, tail.split(" ")):
        if _STATE_WORD.fullmatch(word) is None:
            return None
        for place, part in enumerate(_DOMAINS.split(word)):
            name, _, value = part.partition(":")
            if (place or name in _COUNTS) and _COUNT.match(value) is None:
                return None
            state[name] = value
    thread = state.pop("TID", "")
    number = whole_number(thread)
    return None if thread and number is None else (state, number)
