"""Conditions that users type: one grammar for --require, rules of policies, and --where of traces.

    expression := all ("or" all)*          all := one ("and" one)*
    one        := "not" one | "(" expression ")" | comparison
    comparison := NAME [OPERATOR OPERAND ("," OPERATOR OPERAND)*]
    OPERAND    := "in quotes", 'in quotes', [a, list], or one word

A Language states which part of the grammar is accepted. `parse` evaluates nothing: it returns records.
"""

import re

from msgspec import Struct

from mlbackends.base.errors import shown, suggestion
from mlbackends.base.patterns import pattern

ALONE = ("present", "absent")
LISTS = ("in", "not in")
_DEEPEST = 50
_OPERATOR = pattern(r"[<>=!~]+|not\s+in\b|[A-Za-z_]+\b")
_JOIN = pattern(r"(?:and|or|not)(?=[\s(]|$)", re.IGNORECASE)
_QUOTED = pattern(r"""\s*(?:"([^"\n]*)"|'([^'\n]*)')\s*""")


class Language(Struct, frozen=True):
    """Which conditions are accepted.

    name: what a name looks like. word: one unquoted operand. operators: signs and words; those of ALONE
    take no operand, those of LISTS a list. named: what a name is called in messages. joins: whether and, or,
    not and parentheses are there, and an operand ends where a parenthesis closes. clauses: whether commas
    join several comparisons of one name. With joins or clauses a name alone is a condition too.
    """

    name: re.Pattern[str]
    word: re.Pattern[str]
    operators: tuple[str, ...]
    named: str = "a name"
    joins: bool = False
    clauses: bool = False


class Comparison(Struct, frozen=True):
    """A name, compared. operator: "" for a name alone. operand: without its quotes."""

    name: str
    operator: str = ""
    operand: str | tuple[str, ...] = ""


class Joined(Struct, frozen=True):
    """Conditions joined by `and` or `or`; `not` has one."""

    word: str
    parts: tuple["Condition", ...]


Condition = Comparison | Joined


class Unreadable(ValueError):
    """The text is not a condition of the language. needed: what is missing. rest: the text from there on."""

    def __init__(self, needed: str, rest: str, message: str = "") -> None:
        found = shown(rest[:40]) if rest else "the end"
        super().__init__(message or f"expected {needed}, found {found}")
        self.needed, self.rest = needed, rest


def parse(text: str, language: Language) -> Condition:
    """Return the condition that a text is. Raises Unreadable."""
    parser = _Parser(text, language)
    found = parser.joined("or") if language.joins else parser.comparison()
    if parser.rest():
        raise parser.unreadable("and, or, or the end" if language.joins else "the end")
    return found


class _Parser:
    def __init__(self, text: str, language: Language) -> None:
        self.text, self.language = text, language
        self.at = self.depth = 0
        self.last_join = ""

    def rest(self) -> str:
        """Pass over blanks; return what is left."""
        left = self.text[self.at :].lstrip()
        self.at = len(self.text) - len(left)
        return left

    def unreadable(self, needed: str, message: str = "") -> Unreadable:
        return Unreadable(needed, self.text[self.at :], message)

    def skip(self, sign: str) -> bool:
        """Pass over a sign, if it comes next."""
        is_next = self.rest().startswith(sign)
        self.at += len(sign) if is_next else 0
        return is_next

    def skip_join(self, word: str) -> bool:
        """Pass over and, or or not, if it comes next."""
        found = _JOIN.match(self.rest())
        if not found or found[0].lower() != word:
            return False
        self.at += len(word)
        self.last_join = word
        return True

    def joined(self, word: str) -> Condition:
        """Read conditions joined by a word, those of `and` inside those of `or`."""
        parts: list[Condition] = []
        while not parts or self.skip_join(word):
            parts.append(self.one() if word == "and" else self.joined("and"))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def one(self) -> Condition:
        is_negated = False
        while self.skip_join("not"):
            is_negated = not is_negated
        if self.skip("("):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self.unreadable("", f"there are more than {_DEEPEST} parentheses")
            found = self.joined("or")
            if not self.skip(")"):
                raise self.unreadable("')'")
            self.depth -= 1
        else:
            found = self.comparison()
        return Joined("not", (found,)) if is_negated else found

    def comparison(self) -> Condition:
        rest = self.rest()
        if not rest and self.last_join:
            raise self.unreadable("", f"an operand is missing after {self.last_join!r}")
        found = self.language.name.match(self.text, self.at)
        if not found:
            raise self.unreadable(self.language.named)
        self.at = found.end()
        comparisons = [self.compared(found[0], is_first=True)]
        while self.language.clauses and comparisons[0].operator and self.skip(","):
            comparisons.append(self.compared(found[0], is_first=False))
        return comparisons[0] if len(comparisons) == 1 else Joined("and", tuple(comparisons))

    def compared(self, name: str, *, is_first: bool) -> Comparison:
        """Read the operator and operand behind a name."""
        rest, language = self.rest(), self.language
        found = _OPERATOR.match(rest)
        operator = " ".join(found[0].split()) if found else ""
        is_end = not rest or (language.joins and (rest[0] == ")" or operator.lower() in ("and", "or")))
        if (language.joins or language.clauses) and is_first and is_end:
            return Comparison(name)
        if not found:
            raise self.unreadable(f"an operator ({', '.join(language.operators)})")
        if operator not in language.operators:
            words = tuple(word for word in language.operators if word.isalpha())
            operators = ", ".join(language.operators)
            near = "; write ==" if operator == "=" else suggestion(operator, words)
            raise self.unreadable(
                "an operator", f"{shown(operator)} is not an operator{near or f': {operators}'}"
            )
        self.at += found.end()
        if operator in ALONE:
            return Comparison(name, operator)
        if operator in LISTS:
            return Comparison(name, operator, self.listed())
        return Comparison(name, operator, self.operand())

    def operand(self) -> str:
        rest = self.rest()
        if found := _QUOTED.match(rest):
            self.at += found.end()
            return found[1] if found[1] is not None else found[2]
        if rest[:1] in ("'", '"'):
            raise self.unreadable(f"a second {rest[0]}")
        found = self.language.word.match(rest)
        word = found[0] if found else ""
        if self.language.joins:  # a parenthesis that closes none in the word ends it
            depth = 0
            for end, character in enumerate(word):
                depth += {"(": 1, ")": -1}.get(character, 0)
                if depth < 0:
                    word = word[:end]
                    break
        if not word:
            raise self.unreadable("a value")
        self.at += len(word)
        return word

    def listed(self) -> tuple[str, ...]:
        if not self.skip("["):
            raise self.unreadable("a list such as [AVX2, AVX512]")
        words: list[str] = []
        while not words or self.skip(","):
            words.append(self.operand())
        if not self.skip("]"):
            raise self.unreadable("]")
        return tuple(words)
