"""What lscpu prints, as cores."""

from __future__ import annotations

import pytest

from mlbackends.launch.cores import Core, parse_lscpu


def test_hyper_threads_are_put_to_their_core() -> None:
    topology = parse_lscpu("# CPU,Core,Socket,Node\n0,0,0,0\n1,1,0,0\n2,0,0,0\n3,1,0,0\n")
    assert topology.cores == (Core(0, (0, 2)), Core(0, (1, 3)))


def test_a_node_may_have_two_digits() -> None:
    topology = parse_lscpu("\n".join(f"{cpu},{cpu},0,{cpu}" for cpu in range(12)))
    assert topology.nodes == tuple(range(12))


def test_a_cpu_that_is_off_has_no_core_and_is_left_out() -> None:
    assert parse_lscpu("0,0,0,0\n1,,,\n2,2,0,0").logical() == (0, 2)


def test_an_empty_node_is_the_lowest_one() -> None:
    assert parse_lscpu("0,0,0,\n1,1,0,").nodes == (0,)


def test_columns_of_caches_do_not_count() -> None:
    assert parse_lscpu("0,0,0,1,,0,0,0,0").nodes == (1,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "0,0,0",
        "x,0,0,0",
        ",0,0,0",
        "0,0,0,0\n0,1,0,0",
        "-1,0,0,0",
        "9999999,0,0,0",
        "0,,,",
        "\u0661,0,0,0",
        pytest.param("0" + f",{' ' * 2000}" * 3 + "x", id="many blanks"),
    ],
)
def test_what_lscpu_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lscpu"):
        parse_lscpu(text)
