"""`backends explain`: every switch, code and deviation has a page."""

from __future__ import annotations

import pytest
from running import backends

from mlbackends.cli import topics
from mlbackends.cli.prose import Passage, markdown, printed
from mlbackends.cli.terminal import Page
from mlbackends.deviations import DEVIATIONS
from mlbackends.flag_table import FLAGS
from mlbackends.model.errors import UnknownName


def test_deviations_lists_each_one_with_what_torch_does_and_what_we_do() -> None:
    done = backends("explain", "deviations", environment={"COLUMNS": "1000"})

    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for each in DEVIATIONS:
        assert each.code in text
        assert " ".join(each.torch.split()) in text
        assert " ".join(each.ours.split()) in text


@pytest.mark.parametrize("name", FLAGS)
def test_every_switch_is_explained(name: str) -> None:
    (passage,) = topics.explained(name)
    said = dict(passage.lines)

    assert said[""] == FLAGS[name].doc
    assert said["takes"] and said["default"] and said["obeyed by"] and said["in Python"]


def test_a_reason_code_is_explained() -> None:
    done = backends("explain", "dlopen-failed")

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "dlopen-failed")


def test_without_a_topic_all_of_them_are_listed() -> None:
    text = backends("explain", environment={"COLUMNS": "1000"}).stdout

    assert all(each.code in text for each in DEVIATIONS)
    assert all(name in text for name in FLAGS)


def test_an_unknown_topic_ends_with_2_and_the_nearest_one() -> None:
    done = backends("explain", "cudn.benchmark")

    assert done.returncode == 2
    assert "did you mean 'cudnn.benchmark'?" in done.stderr


def test_every_way_in_python_that_is_named_is_there() -> None:
    import mlbackends

    for flag in FLAGS.values():
        way = dict(topics.switch(flag).lines)["in Python"]
        if flag.reached == "variable":
            continue
        path = way.partition("(")[0].partition(" ")[0].split(".")
        found: object = mlbackends
        for part in path[1:]:
            found = getattr(found, part)


def test_text_is_wrapped_below_its_term() -> None:
    passage = Passage("head", (("", "a b"), ("term", "word " * 10), ("longer term", "x")))

    text = printed((passage,), Page(width=40))

    assert text.splitlines()[:3] == ["head", "  a b", "  term         word word word word word"]
    assert text.splitlines()[3] == "               word word word word word"


def test_markdown_puts_an_empty_line_below_a_heading() -> None:
    assert markdown((Passage("head", (("", "text"), ("term", "meaning"))),)) == (
        "## head\n\ntext\n- **term**: meaning\n"
    )


def test_a_group_is_explained_by_its_switches() -> None:
    passages = topics.explained("cuda.matmul")

    assert [each.heading for each in passages] == [
        name for name in FLAGS if name.startswith("cuda.matmul.")
    ]


def test_of_many_names_none_is_a_wall() -> None:
    with pytest.raises(UnknownName) as error:
        topics.explained("zzzzzz")

    assert error.value.hint == "`backends explain` has them all"
