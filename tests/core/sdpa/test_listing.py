"""What a backend can, by trying its constraints."""

from __future__ import annotations

from mlbackends.base.tables import table
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.constraints import capability_between, dtype_in, on_device, unmet
from mlbackends.sdpa.listing import abilities
from mlbackends.sdpa.switches import SDPBackend


class OnHopper(AttentionBackend):
    name, answers_to = "on_hopper", SDPBackend.FLASH_ATTENTION
    constraints = (on_device("cuda"), capability_between((9, 0), (9, 0)), dtype_in("bfloat16"))
    takes = frozenset({"gradient", "grouped_heads"})


def test_a_backend_of_one_type_on_one_gpu_is_asked_there() -> None:
    assert set(abilities(OnHopper().unsupported_reasons)) == {
        "causal masks", "grouped heads", "value_dim ≠ head_dim", "bshd layout", "gradients",
    }  # fmt: skip


def test_who_refuses_nothing_can_all() -> None:
    assert abilities(lambda problem: unmet((), problem)) == tuple(table("sdpa/abilities"))


def test_who_takes_nothing_can_nothing() -> None:
    assert abilities(lambda problem: unmet((on_device("xpu"),), problem)) == ()
