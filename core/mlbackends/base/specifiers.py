"""Version specifiers, such as ">=2.0,<2.1", and whether versions satisfy them.

Source: PyPA, "Version specifiers". `packaging` judges what is not surely satisfied; importing it takes 20 ms,
a fifth of a whole survey, so what few comparisons settle is settled here.
"""

from collections.abc import Iterable

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers

_RELEASE = pattern(r"\s*(\d{1,18}(?:\.\d{1,18})*)(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\s*")
_CLAUSE = pattern(r"(===|==|~=|!=|>=|<=|>|<)\s*([^\s,]+)")
_LONGEST_VERSION = 200


def same_public_version(one: str, other: str) -> bool:
    """Return whether two versions are the same up to their "+"."""
    first, second = one.partition("+")[0], other.partition("+")[0]
    matches = satisfies(first, f"=={second}") if second.strip() else None
    return first == second if matches is None else matches


def satisfies(version: str, clauses: str) -> bool | None:
    """Return whether a version satisfies clauses such as "<2.1,>=2.0"; None if they are not valid.

    Pre-releases count like other versions: what is installed was chosen, not proposed.
    """
    comparisons = _CLAUSE.findall(clauses)
    if not comparisons or _CLAUSE.sub("", clauses).strip(" ,"):
        return None
    results = [_fits(version, sign, required) for sign, required in comparisons]
    return False if False in results else None if None in results else True


def narrowed(clauses: Iterable[str]) -> str:
    """Return clauses as one text, of those that bound a plain version only the narrowest: "<3,>=2.0.2"."""
    kept: dict[str, str] = {}
    for clause in sorted(clauses):
        sign, version = clause.rstrip("0123456789."), clause.lstrip("<>=! ")
        bound = sign if sign in ("<", ">=") and dotted_numbers(version) else clause
        known = dotted_numbers(kept.get(bound, clause).lstrip("<>= "))
        if bound not in kept or (dotted_numbers(version) < known) is (sign == "<"):
            kept[bound] = clause
    return ",".join(sorted(kept.values()))


def can_be_met(clauses: str) -> bool:
    """Return whether some version may satisfy clauses: one that they name, or the next one after it."""
    named = [version.removesuffix(".*") for _, version in _CLAUSE.findall(clauses)]
    versions = ("0", *named, *(f"{version}.0.0.1" for version in named))
    return not clauses or any(satisfies(version, clauses) is not False for version in versions)


def _fits(version: str, sign: str, required: str) -> bool | None:
    if sign == "===":
        return version.strip().lower() == required.lower()
    if max(len(version), len(required)) > _LONGEST_VERSION:
        return None
    is_prefix = required.endswith(".*") and sign in ("==", "!=")
    have = _RELEASE.fullmatch(version.lower())
    needed = _RELEASE.fullmatch(required.removesuffix(".*") if is_prefix else required)
    if have and needed and "+" not in required:
        ours, theirs = _numbers(have[1]), _numbers(needed[1])
        prefix = [int(part) for part in needed[1].split(".")[: None if is_prefix else -1]]
        begins = [*ours, *[0] * len(prefix)][: len(prefix)] == prefix
        if is_prefix:
            return begins is (sign == "==")
        if sign == "~=" and prefix:
            return begins and ours >= theirs
        if sign != "~=":
            if ours == theirs:
                return sign in ("==", "<=", ">=")
            return sign == "!=" or sign[0] == ("<" if ours < theirs else ">")
    # packaging takes 20 ms to import, which is a fifth of a whole survey.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(f"{sign}{required}").contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def _numbers(release: str) -> list[int]:
    """Return the numbers of a release without the zeros at its end."""
    numbers = [int(part) for part in release.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers
