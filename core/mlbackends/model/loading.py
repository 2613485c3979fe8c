"""What `backends resolve` answers: for each package, whether it loads here, and if not, why."""

from enum import StrEnum

from msgspec import Struct, field

SCHEMA = "backends.resolution/1"
MATRIX_SCHEMA = "backends.chips/1"


class Verdict(StrEnum):
    """How loading a package ends; the order of the members is from best to worst."""

    LOADS = "loads"
    #: It can be imported, and then does on the CPU, or not at all, what it was installed for.
    FALLS_BACK = "loads, then falls back"
    UNKNOWN = "cannot be determined"
    #: It can be imported, and the first thing that it computes on the GPU ends with an error.
    BREAKS = "loads, then fails"
    FAILS = "does not load"


class Need(Struct, frozen=True, omit_defaults=True):
    """A library that a file needs, and how the loader finds it.

    name: as the file names it. path: the file that the loader opens, "" if it finds none. step: the step of
    the search that finds it: "already loaded", "RUNPATH", "ld.so.cache", "@rpath", "PATH". via: the folder,
    variable or package that this step owes it to.
    """

    name: str
    path: str = ""
    step: str = ""
    via: str = ""


class LoadedFile(Struct, frozen=True, omit_defaults=True):
    """A file that is mapped when a package is loaded, and what it needs in turn."""

    path: str
    needs: tuple[Need, ...] = ()


class Fault(Struct, frozen=True, omit_defaults=True):
    """Why something does not load, or does not run once it is loaded.

    code: stable, one of FAULTS. name: what is missing or does not fit, exactly as the loader or the package
    names it: "libcudart.so.13", a symbol, "sm_121", "GLIBC_2.38". message: the words that the loader would
    print. path: the files from the one that the package opens to the one that asks, each needed by the one
    before it. cause: where that comes from, one sentence, "" where the message says all. hint: what to do.
    command: what to type for that, "" where no command does it. others: the other symbols or
    libraries that the same file lacks. package: the one that installed the file that is opened, which may be
    another than fails.
    """

    code: str
    name: str
    message: str
    path: tuple[str, ...] = ()
    cause: str = ""
    hint: str = ""
    command: str = ""
    others: tuple[str, ...] = ()
    package: str = ""


#: The codes of faults, each with what it means.
FAULTS = {
    "missing-library": "A file needs a library that no step of the loader's search finds.",
    "missing-symbol": "A file needs a function or variable that nothing it is loaded with defines.",
    "missing-version": "A library is found, and lacks a version of its symbols that a file needs.",
    "not-a-library": "The file that the search finds is cut short, damaged or of another kind.",
    "wrong-architecture": "The file is built for another processor architecture.",
    "executable-stack": "The file asks for an executable stack, which glibc 2.41 and newer refuse.",
    "missing-file": "A file that the package installed is gone.",
    "wrong-python": "The package's compiled files are for another Python.",
    "glibc-too-old": "The package was built for a newer C library.",
    "driver-too-old": "The driver is older than the package's CUDA or ROCm needs.",
    "no-code-for-chip": "The package has no code for this chip, and none that could be translated for it.",
    "cpu-too-old": "The package's code has instructions that this processor lacks.",
    "not-opened-later": "A library that is opened by name while the package runs is not found.",
    "unmet-requirement": "A package that this one imports is missing, or is itself not loaded.",
    "not-read": "A file that the answer needs could not be read.",
}


class TargetMachine(Struct, frozen=True, omit_defaults=True):
    """A machine that a package is judged for; what is "" or () is not known of it, and not judged.

    name: as it was asked for, "gb10". title: in words. chip: what its GPU is to compilers, "12.1", "gfx1151".
    vendor: of the GPU, nvidia or amd.
    machine: "x86_64", "aarch64". features: its CPU's instruction sets by Linux's names. driver: release of
    the NVIDIA driver. glibc: "2.31".
    """

    name: str
    title: str = ""
    chip: str = ""
    machine: str = ""
    vendor: str = "nvidia"
    features: tuple[str, ...] = ()
    driver: str = ""
    glibc: str = ""


class PackageLoading(Struct, frozen=True, omit_defaults=True):
    """Whether one package, or one file, loads here.

    name, version: of the distribution; a file's path and "" for a file. faults: why it does not load, the
    first one as the loader meets it. fallbacks: what is missing once it is loaded, which costs it a device
    or a feature. parts: faults of parts that importing the package does not load. after: modules that have
    to be imported first, where it would not load alone. files: everything that is mapped for it; only where
    they were asked for.
    """

    name: str
    version: str = ""
    # A factory, so that the JSON always has it.
    verdict: Verdict = field(default_factory=lambda: Verdict.LOADS)
    faults: tuple[Fault, ...] = ()
    fallbacks: tuple[Fault, ...] = ()
    parts: tuple[Fault, ...] = ()
    after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[LoadedFile, ...] = ()


class Lookup(Struct, frozen=True, omit_defaults=True):
    """Who needs a library or a symbol, and what has it.

    kind: library or symbol. needs: by the path of the file that asks; of a symbol the step is its version.
    definers: the files that have it, each with its package, "NAME VERSION" or "".
    """

    name: str
    kind: str
    needs: dict[str, Need] = {}
    definers: dict[str, str] = {}


class Resolution(Struct, frozen=True, omit_defaults=True):
    """The answer for an environment. target: the machine that was asked about, in words.

    lookups: the answers to --why. notes: what to know about all of it.
    """

    schema: str
    tool: str
    python: str
    machine: str
    target: str = ""
    packages: tuple[PackageLoading, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the packages."""
        verdicts = [package.verdict for package in self.packages]
        return max(verdicts, key=list(Verdict).index, default=Verdict.LOADS)


class ChipRow(Struct, frozen=True):
    """How the GPU code of a package fits chips.

    fits: by chip: code, ptx (translated at the first use), part (some files lack it), none, or unknown where
    the code is compressed.
    """

    name: str
    version: str
    fits: dict[str, str]


class ChipMatrix(Struct, frozen=True):
    """How the GPU code of each package fits each chip, such as "9.0" and "gfx942"."""

    schema: str
    tool: str
    python: str
    chips: tuple[str, ...]
    packages: tuple[ChipRow, ...]
