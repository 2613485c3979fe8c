"""Cases: one public issue each, as facts in a TOML file, whose fields replay/README.md explains."""

import os
import tomllib

import msgspec
from msgspec import Struct, field

from mlbackends.base.errors import BadInput, UnknownName, why_not
from mlbackends_replay.stand_ins import StandIn

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSIDE = os.path.isdir(os.path.join(_HERE, "cases"))  # of a wheel, not of the repository
FOLDER = os.path.join(_HERE if _INSIDE else os.path.dirname(_HERE), "cases")


class Installed(Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution that stands for one which no index has. files: the texts of its files, by path."""

    name: str
    version: str
    files: dict[str, str] = {}
    libraries: tuple[StandIn, ...] = ()


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """One issue: its environment, the question, and what was wrong there."""

    thread: str
    url: str
    title: str
    cause: str
    #: The word that the first line of the answer must have; any one of several.
    missing: str | tuple[str, ...]
    verdict: str
    message: str
    ended_by: str
    command: str
    python: str
    machine: str
    size_mb: int
    wheels: tuple[str, ...] = ()
    #: The only files that are unpacked of a wheel, as patterns, by the wheel.
    keep: dict[str, tuple[str, ...]] = {}
    remove: tuple[str, ...] = ()
    installs: tuple[Installed, ...] = field(default=(), name="install")
    libraries: tuple[StandIn, ...] = field(default=(), name="library")
    #: Libraries of the system, by soname.
    system: tuple[str, ...] = ()
    #: Requirements of the wheels that nothing stands for.
    uninstalled: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    driver: str = ""
    glibc_below: str = ""
    #: What differs from the thread, and how the cause was looked up in the files.
    stand_in: str = ""
    checked: str = ""
    #: Why the answer is not the thread's cause.
    miss: str = ""
    name: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of which the first line must have one."""
        return (self.missing,) if isinstance(self.missing, str) else self.missing


def read(path: str) -> Case:
    """Return the case in a file. Raises BadInput, with the field that is wrong."""
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
        stem = os.path.splitext(os.path.basename(path))[0]
        return msgspec.convert({**data, "name": stem}, Case)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a case: {why_not(error)}") from None


def every() -> list[Case]:
    """Return every case of the repository, the smallest first."""
    paths = [os.path.join(FOLDER, name) for name in os.listdir(FOLDER) if name.endswith(".toml")]
    return sorted(map(read, paths), key=lambda case: (case.size_mb, case.name))


def named(text: str) -> Case:
    """Return a case by its file, its link, or its thread: "vllm-project/vllm#44335", "vllm#44335", "44335".

    Raises UnknownName.
    """
    if text.endswith(".toml"):
        return read(text)
    wanted = text.rpartition("github.com/")[2].lower()
    wanted = wanted.replace("/issues/", "#").replace("/pull/", "#")
    cases = every()
    for case in cases:
        thread = case.thread.lower()
        if wanted in (thread, thread.partition("/")[2], thread.partition("#")[2], case.name.lower()):
            return case
    raise UnknownName("case", text, tuple(case.thread.partition("/")[2] for case in cases))
