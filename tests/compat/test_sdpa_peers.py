"""torch's own attention as a peer of `sdpa check`: it runs, is right, and takes what our rules say."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mlbackends.model.checked import Ended
from mlbackends.sdpa.problem_text import parse, read_file
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SMALL = Path(__file__).resolve().parents[1] / "problems" / "small.txt"
PLAN = Plan(names=("torch_flash", "torch_math"), rounds=0)


@pytest.mark.slow
def test_torch_computes_every_small_problem_that_its_rules_take() -> None:
    checked = check(read_file(str(SMALL)), PLAN)
    ran = 0
    for problem in checked.problems:
        for result in problem.results:
            assert result.ended in (Ended.RAN, Ended.CANNOT), (problem.text, result)
            if result.errors is not None:
                ran += 1
                assert not result.errors.misplaced, (problem.text, result)
                assert result.errors.largest_absolute <= 4 * result.errors.largest_allowed
    assert ran > 50


def test_it_says_its_version() -> None:
    (problem,) = check(parse("--shape 1,2,8,16"), PLAN).problems

    assert {result.details["version"] for result in problem.results} == {torch.__version__}


def test_what_our_rules_say_that_torch_takes_is_what_torch_takes() -> None:
    for wording in parse("--shape 1,2,8,16 --mask none,causal,bool --dropout 0,0.5 --value-dim 16,8"):
        (problem,) = check([wording], Plan(names=("torch_flash",), rounds=0)).problems
        (result,) = problem.results
        flash = problem.torch_chosen == "FLASH_ATTENTION"
        assert (result.ended is Ended.RAN) is flash, (wording.text, result)


def test_torch_s_gradients_are_right_and_timed_where_its_rules_take_them() -> None:
    words = "--kv-heads 2 --gqa --mask none,causal,1,9 --backward --layout bshd"
    lines = (
        f"--shape 1,4,9,16 --dtype float32,bfloat16 {words}",
        "--shape 1,2,9,8 --mask-gradient",
    )
    found = [*parse(lines[0]), *parse(f"{lines[1]} --mask float")]
    for problem in check(found, replace(PLAN, rounds=1)).problems:
        flash, plain = problem.results
        wanted = ["query", "key", "value", *(["mask"] if "--mask-gradient" in problem.text else [])]
        assert (flash.ended is Ended.RAN) is (problem.torch_chosen == "FLASH_ATTENTION")
        assert list(plain.gradients) == wanted
        for result in (flash, plain):
            assert (result.timing is not None) is (result.ended is Ended.RAN)
            for errors in result.gradients.values():
                assert not errors.misplaced, (problem.text, result)
                assert errors.largest_absolute <= 4 * errors.largest_allowed
