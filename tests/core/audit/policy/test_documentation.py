"""What docs/policies.md shows is a policy, and it leaves no key and no operator out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlbackends.audit.policy import expectation, language
from mlbackends.audit.policy.reader import parsed
from mlbackends.audit.policy.rules import declared

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_a_policy(text: str) -> None:
    text = text if text.startswith("schema") else f"schema = 1\n{text}"

    declared(parsed(text.encode(), "/nowhere/policy.toml", "/nowhere"))


@pytest.mark.parametrize("key", [key.name for keys in language.TABLES.values() for key in keys])
def test_no_key_is_left_out(key: str) -> None:
    assert re.search(rf"\b{key}\b", PAGE)


@pytest.mark.parametrize("name", re.findall(r"^\| `([^`]+)` \| [^|]+ \|$", PAGE, re.MULTILINE))
def test_a_name_that_is_shown_can_be_read(name: str) -> None:
    assert expectation.name(name).text == name


def test_every_operator_is_in_the_manual() -> None:
    shown = " ".join(language.SHORT_FORM)

    assert not [word for word in expectation.SHORT.operators[1:] if word not in shown]


@pytest.mark.parametrize("name", language.NAMES)
def test_a_name_in_the_manual_can_be_read(name: str) -> None:
    assert expectation.name(name).text == name
