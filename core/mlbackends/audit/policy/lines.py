"""On which line each key of a TOML text stands, which `tomllib` does not tell.

It follows the same grammar and keeps no values. It also tells nesting and dotted keys that are too deep,
on which tomllib would run out of stack or take hours, before tomllib sees the text.
"""

from contextlib import suppress

from mlbackends.model.patterns import pattern

Path = tuple[str | int, ...]
DEEPEST = 40
"""So many brackets inside each other, and parts of a dotted key, are read; no policy has a tenth of it."""

_PLAIN_LINE = pattern(
    r"""[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*
    (?:"[^"\\\n]*"(?!")|'[^'\n]*'(?!')|[A-Za-z0-9_.+:-]+)
    [ \t]*(?:\#[^\n]*)?(?:\n|\Z)""",
    0x40,  # re.VERBOSE, without importing re for it
)
_PLAIN_HEAD = pattern(r"\[\[([A-Za-z0-9_-]+)\]\]\n?")
_SPACE = pattern(r"(?:[ \t\n]++|#[^\n]*+)*+")
_KEY = pattern(r"""[ \t]*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\n]|\\.)*+)"|'([^'\n]*)')[ \t]*""")
_ATOM = pattern(
    r'''"""(?:\\.|[^"\\]|"{1,2}(?!"))*+"{3,5}'''
    r"""|'{3}(?:[^']|'{1,2}(?!'))*+'{3,5}"""
    r'''|"(?:[^"\\\n]|\\.)*+"'''
    r"|'[^'\n]*'"
    r"|[^,\]}\[{\n#\"']+",
    0x10,  # re.DOTALL
)


class TooDeep(Exception):
    """A key has more parts, or brackets are nested more deeply, than anything that is meant."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _NotToml(Exception):
    """Here the text is no TOML; tomllib will say so in its own words."""


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each table and key, from 1, by the path to it.

    The path of the third `[[rule]]`'s key min is ("rule", 2, "min"). Of a text that is no TOML the lines
    are told up to the error. Raises TooDeep.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    with suppress(_NotToml):
        scanner.document()
    return scanner.lines


class _Scanner:
    """Walks through a text; `at` is where it stands, `line` which line that is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[Path, int] = {}
        self.table: Path = ()
        self.last: dict[Path, int] = {}  # of each list of tables, the number of the last one

    def document(self) -> None:
        """Read statement by statement."""
        while True:
            self.plain_lines()
            self.space()
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                self.head()
            elif not _PLAIN_LINE.match(self.text, self.at):
                self.pair(self.table, 0)

    def plain_lines(self) -> None:
        """Read as many lines as there are that have a key and a short value, as most do."""
        at, line, match = self.at, self.line, _PLAIN_LINE.match
        while found := match(self.text, at):
            self.lines.setdefault((*self.table, found[1]), line)
            at = found.end()
            line += 1
        self.at, self.line = at, line

    def to(self, end: int) -> None:
        """Go on to a place, and count lines."""
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def space(self) -> None:
        """Pass over white space and comments."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.to(found.end())

    def take(self, mark: str) -> None:
        """Pass over a mark. Raises _NotToml where another one stands."""
        if not self.text.startswith(mark, self.at):
            raise _NotToml
        self.at += len(mark)

    def key(self) -> tuple[str, ...]:
        """Return the parts of a dotted key."""
        parts: list[str] = []
        while True:
            found = _KEY.match(self.text, self.at)
            if not found:
                raise _NotToml
            bare, quoted, literal = found.groups()
            parts.append(bare or (_unescaped(quoted) if quoted is not None else literal or ""))
            self.at = found.end()
            if len(parts) > DEEPEST:
                raise TooDeep(self.line)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def head(self) -> None:
        """Read [table] or [[table]]."""
        if plain := _PLAIN_HEAD.match(self.text, self.at):
            self.at = plain.end()
            path: Path = (plain[1],)
            self.lines.setdefault(path, self.line)
            self.last[path] = self.last.get(path, -1) + 1
            self.table = (*path, self.last[path])
            self.lines[self.table] = self.line
            self.line += plain[0].endswith("\n")
            return
        line = self.line
        marks = ("[[", "]]") if self.text.startswith("[[", self.at) else ("[", "]")
        self.take(marks[0])
        parts = self.key()
        self.take(marks[1])
        path = ()
        for number, part in enumerate(parts):
            path = (*path, part)
            is_last = number == len(parts) - 1
            self.lines.setdefault(path, line)
            if is_last and marks[0] == "[[":
                self.last[path] = self.last.get(path, -1) + 1
            if path in self.last:
                path = (*path, self.last[path])
        self.lines.setdefault(path, line)
        self.table = path

    def pair(self, table: Path, depth: int) -> None:
        """Read KEY = VALUE."""
        line = self.line
        path = table
        for part in self.key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.take("=")
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        """Pass over a value; what is inside a list or an inline table gets its lines too."""
        self.space()
        mark = self.text[self.at : self.at + 1]
        if not mark:
            raise _NotToml
        if mark in "[{":
            if depth >= DEEPEST:
                raise TooDeep(self.line)
            self.at += 1
            self.members(path, depth + 1, "]" if mark == "[" else "}")
            return
        found = _ATOM.match(self.text, self.at)
        if not found:
            raise _NotToml
        self.to(found.end())

    def members(self, path: Path, depth: int, end: str) -> None:
        """Read what a list or an inline table holds, up to its closing bracket."""
        number = 0
        while True:
            self.space()
            if self.text.startswith(end, self.at):
                self.at += 1
                return
            if end == "]":
                self.lines[*path, number] = self.line
                self.value((*path, number), depth)
            else:
                self.pair(path, depth)
            number += 1
            self.space()
            if not self.text.startswith(end, self.at):
                self.take(",")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    import tomllib

    try:
        return str(tomllib.loads(f'key = "{text}"')["key"])
    except tomllib.TOMLDecodeError:
        raise _NotToml from None
