"""The kinds of values that switches take: what is accepted, and how it is written in text.

Each kind has three methods: `checked` returns the value to keep of what Python code assigns, and refuses
with the type of exception that torch raises there; `parsed` reads the text of an environment variable,
a file or `--set`, and raises ValueError with what is accepted; `written` is its inverse.
"""

from mlbackends.base.errors import shown, suggestion


class Kind:
    """One kind of value. name: as `backends flags` shows it. annotation: as the type stubs have it."""

    name = ""
    annotation = "str"

    def checked(self, switch: str, value: object) -> object:
        """Return the value to keep. Raises what torch raises for a value of the wrong kind."""
        raise NotImplementedError

    def parsed(self, text: str) -> object:
        """Return the value of a text. Raises ValueError with what is accepted."""
        raise NotImplementedError

    def written(self, value: object) -> str:
        """Return a value as text that `parsed` reads back."""
        return "none" if value is None else str(value)


class Boolean(Kind):
    """True or False, not 1 or 0, as torch; in a variable 1 or 0, in which torch takes nothing else."""

    name = annotation = "bool"

    def checked(self, switch: str, value: object) -> object:
        if not isinstance(value, bool):
            raise RuntimeError(f"{switch} expects a bool, but got {_type_of(value)}")  # noqa: TRY004
        return value

    def parsed(self, text: str) -> object:
        if text not in ("0", "1"):
            raise ValueError("valid values are 0 or 1")
        return text == "1"

    def written(self, value: object) -> str:
        return "1" if value else "0"


class Reduction(Boolean):
    """Whether cuBLAS may reduce in the input's precision: a bool, or (allow_reduced, allow_splitk).

    The value that is kept is the pair; a bool alone leaves split-K allowed. (True, False) makes no
    sense. As text: 0, 1, or two of them with a comma.
    """

    name = "bool or two"
    annotation = "bool | tuple[bool, ...] | list[bool]"

    def checked(self, switch: str, value: object) -> object:
        if isinstance(value, bool):
            return value, True
        if not isinstance(value, tuple | list):
            expected = "a bool or a tuple/list of bools"
            raise TypeError(f"{switch} expects {expected}, but got {_type_of(value)}")
        if not value:
            raise TypeError(f"{switch} expects at least one boolean argument")
        if len(value) > 2:
            raise TypeError(f"{switch} expects at most two boolean arguments")
        for item, part in zip(value, ("allow_reduced_precision", "allow_splitk"), strict=False):
            if not isinstance(item, bool):
                raise TypeError(f"{switch} expects a bool for {part}, but got {_type_of(item)}")
        pair = (value[0], value[1] if len(value) == 2 else True)
        if pair == (True, False):
            raise RuntimeError(
                f"{switch}: allow_splitk=False is not supported when reduced precision reductions are enabled"
            )
        return pair

    def parsed(self, text: str) -> object:
        values = [super(Reduction, self).parsed(part.strip()) for part in text.split(",")]
        try:
            return self.checked("the value", values)
        except (TypeError, RuntimeError) as error:
            raise ValueError(str(error)) from None

    def written(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "1" if value[0] else ("0" if value[1] else "0,0")


class Choice(Kind):
    """One of a few words, spelled exactly so.

    unknown, wrong_type: the exceptions for another word and for what is not a text. aliases: words that
    mean one of the others. since: the first torch that takes a word, where that is newer than the switch.
    optional: None is taken too, where the library is not installed.
    """

    name = "word"

    def __init__(
        self,
        *words: str,
        unknown: type[Exception] = RuntimeError,
        wrong_type: type[Exception] = RuntimeError,
        aliases: "dict[str, str] | None" = None,
        since: "dict[str, str] | None" = None,
        optional: bool = False,
    ) -> None:
        self.words = words
        self.unknown = unknown
        self.wrong_type = wrong_type
        self.aliases = aliases or {}
        self.since = since or {}
        self.optional = optional
        self.annotation = "str | None" if optional else "str"

    def checked(self, switch: str, value: object) -> object:
        if not isinstance(value, str):
            raise self.wrong_type(f"{switch} expects a string, but got {_type_of(value)}")
        word = self.aliases.get(value, value)
        if word not in self.words:
            words = self._accepted(value)
            raise self.unknown(f"{switch} cannot be {shown(value)}. Choose from: {words}")
        return word

    def parsed(self, text: str) -> object:
        if text == "none" and self.optional:
            return None
        word = self.aliases.get(text, text)
        if word not in self.words:
            raise ValueError(f"it is one of {self._accepted(text)}")
        return word

    def _accepted(self, word: str) -> str:
        words = (*self.words, *self.aliases)
        return f"{', '.join(words)}{suggestion(word, words)}"


class Count(Kind):
    """A whole number of at least `lowest`; None leaves the choice to the library."""

    name = "int"
    annotation = "int | None"

    def __init__(self, lowest: int = 0) -> None:
        self.lowest = lowest

    def checked(self, switch: str, value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{switch} expects an int, but got {_type_of(value)}")
        if value < self.lowest:
            least = f"{self.lowest} or more" if self.lowest else "non-negative"
            raise RuntimeError(f"{switch} must be {least}, but got {shown(value)}")
        if value >= 2**63:
            raise RuntimeError(f"{switch} must be at most 2**63 - 1, but got {shown(value)}")
        return value

    def parsed(self, text: str) -> object:
        if text == "none":
            return None
        digits = text.isascii() and text.isdecimal() and len(text) < 20
        if not digits or not self.lowest <= int(text) < 2**63:
            raise ValueError(f"valid values are whole numbers from {self.lowest} to 2**63 - 1")
        return int(text)


class Permutation(Kind):
    """An order of all of the named things, as a tuple of their numbers; as text their names with commas."""

    name = "order"
    annotation = "tuple[int, ...]"

    def __init__(self, *words: str) -> None:
        self.words = words

    def checked(self, switch: str, value: object) -> object:
        if not isinstance(value, tuple | list):
            raise RuntimeError(f"{switch} expects a tuple or list, but got {_type_of(value)}")  # noqa: TRY004
        numbers = [int(item) if isinstance(item, int) else -1 for item in value]
        if sorted(numbers) != list(range(len(self.words))):
            raise RuntimeError(
                f"{switch} must name each of 0 to {len(self.words) - 1} once, but got {shown(list(value))}"
            )
        return tuple(numbers)

    def parsed(self, text: str) -> object:
        names = [part.strip() for part in text.split(",")]
        if sorted(names) != sorted(self.words):
            raise ValueError(f"valid values are {','.join(self.words)} in any order, each once")
        return tuple(self.words.index(name) for name in names)

    def written(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(self.words[number] for number in value)


class Workspace(Count):
    """A workspace in bytes; in CUBLAS_WORKSPACE_CONFIG as repeated `:KiB:count`.

    `:4096:2:16:8` is 4096 KiB twice and 16 KiB eight times. Written are buffers of 4096, 16 and 1 KiB,
    rounded up: 32 MiB is :4096:8, with which results repeat bit for bit.
    Source: cuBLAS documentation, "Results reproducibility".
    """

    def parsed(self, text: str) -> object:
        if text == "none":
            return None
        parts = text.removeprefix(":").split(":")
        plain = all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts)
        if not text.startswith(":") or len(parts) % 2 or not plain:
            raise ValueError("a valid value is :KiB:count, repeated as needed, such as :4096:8")
        sizes = [int(part) for part in parts]
        total = sum(size * count for size, count in zip(sizes[::2], sizes[1::2], strict=True))
        return _bytes_of(total)

    def written(self, value: object) -> str:
        if not isinstance(value, int):
            return "none"
        left, parts = -(-value // 1024), []
        for size in (4096, 16, 1):
            count, left = divmod(left, size)
            parts += [f":{size}:{count}"] if count else []
        return "".join(parts) or ":0:1"


class Kibibytes(Count):
    """A size in bytes that its variable gives in KiB, rounded up."""

    def parsed(self, text: str) -> object:
        try:
            number = super().parsed(text)
        except ValueError:
            raise ValueError("valid values are whole KiB from 0 to 2**53") from None
        return _bytes_of(number) if isinstance(number, int) else None

    def written(self, value: object) -> str:
        return str(-(-value // 1024)) if isinstance(value, int) else "none"


class Text(Kind):
    """What a library reads from its own variable: any text, kept as it is."""

    name = "text"
    annotation = "str | None"
    expects = "a string"

    def checked(self, switch: str, value: object) -> object:
        if not isinstance(value, str):
            raise TypeError(f"{switch} expects {self.expects}, but got {_type_of(value)}")
        return self.parsed(value)

    def parsed(self, text: str) -> object:
        if "\0" in text:
            raise ValueError("a variable cannot contain a NUL character")
        return text


class ThreadCounts(Text):
    """Numbers of threads by nesting level, as OMP_NUM_THREADS has them: 8, or 4,2.

    Source: OpenMP API specification 5.2, section 21.1.2.
    """

    name = "counts"
    expects = "a whole number, or several as text such as '4,2'"

    def parsed(self, text: str) -> object:
        counts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdecimal() and len(part) < 10 and int(part) for part in counts):
            raise ValueError("valid values are whole numbers from 1 to 999999999, with commas between them")
        return ",".join(counts)


def _bytes_of(kibibytes: int) -> int:
    if kibibytes > 2**53:
        raise ValueError("valid values are at most 2**53 KiB")
    return min(kibibytes * 1024, 2**63 - 1)


def _type_of(value: object) -> str:
    """Return the name of a value's type, with its module where that is not Python's own: numpy.bool."""
    kind = type(value)
    inside = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{inside}{kind.__name__}"
