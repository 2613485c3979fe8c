"""Frequencies, governors and boost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.cpu.speed import frequency_facts, governor_warning, limits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine

    from mlbackends.host.cpu.cpuinfo import Block
    from mlbackends.host.host import Host
    from mlbackends.model.records import FactValue

CPU = "sys/devices/system/cpu"


def frequencies(
    host: Host, cpus: tuple[int, ...] = (0,), blocks: list[Block] | None = None
) -> dict[str, FactValue]:
    return frequency_facts(host, cpus, blocks or [], limits(host, cpus))


def test_the_lowest_frequency_is_that_of_all_kinds_of_core(machine: Machine) -> None:
    files = {}
    for cpu, (lowest, highest) in enumerate(((400000, 1900000), (400000, 1900000), (800000, 2900000))):
        files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_min_freq"] = str(lowest)
        files[f"{CPU}/cpufreq/policy{cpu}/cpuinfo_max_freq"] = str(highest)
    host = machine(files)
    facts = frequency_facts(host, (2,), [], limits(host, (0, 1, 2)))
    assert facts["min_hertz"] == 400_000_000


def test_a_bare_machine_tells_all(machine: Machine) -> None:
    files = {
        f"{CPU}/cpu0/cpufreq/cpuinfo_min_freq": "800000",
        f"{CPU}/cpu0/cpufreq/base_frequency": "2000000",
        f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "3100123",
        f"{CPU}/cpu0/cpufreq/scaling_max_freq": "2500000",
        f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave",
        f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate",
        f"{CPU}/cpu0/cpufreq/energy_performance_preference": "balance_performance",
        f"{CPU}/cpufreq/policy0/cpuinfo_max_freq": "3800000",
        f"{CPU}/cpufreq/policy0/scaling_max_freq": "2500000",
        f"{CPU}/cpufreq/policy1/cpuinfo_max_freq": "4100000",
        f"{CPU}/cpufreq/policy1/scaling_max_freq": "4100000",
        f"{CPU}/cpuidle/current_driver": "intel_idle",
        f"{CPU}/intel_pstate/no_turbo": "1",
    }
    facts = frequencies(machine(files), (0, 1))
    assert facts == {
        "min_hertz": 800_000_000,
        "max_hertz": 4_100_000_000,
        "base_hertz": 2_000_000_000,
        "current_hertz": 3_100_123_000,
        "limit_hertz": 4_100_000_000,
        "capped_cpus": "0",
        "governor": "powersave",
        "scaling_driver": "intel_pstate",
        "energy_preference": "balance_performance",
        "idle_driver": "intel_idle",
        "boost": False,
    }
    assert governor_warning(facts) is None


def test_a_virtual_machine_tells_only_the_current_one(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [{"cpu mhz": "2299.998"}]
    assert frequencies(machine({}), (0,), blocks) == {"current_hertz": 2_299_998_000}


def test_the_name_tells_the_base_where_no_file_does(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [{"model name": "Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz"}]
    assert frequencies(machine({}), (0,), blocks)["base_hertz"] == 2_700_000_000


def test_power_and_z_write_theirs_otherwise(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    host = machine({})
    power = frequencies(host, (0,), [{"clock": "3800.000000MHz"}])
    assert power["current_hertz"] == 3_800_000_000
    z = frequencies(host, (0,), [{}, {"cpu mhz dynamic": "5000", "cpu mhz static": "5200"}])
    assert (z["current_hertz"], z["base_hertz"]) == (5_000_000_000, 5_200_000_000)


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "9" * 30, "1e9", "\0\xff"])
def test_a_nonsense_frequency_is_left_out(machine: Machine, text: str) -> None:
    names = ("cpuinfo_min_freq", "base_frequency", "scaling_cur_freq", "scaling_max_freq")
    files = {f"{CPU}/cpu0/cpufreq/{name}": text for name in names}
    files |= {f"{CPU}/cpu0/cpufreq/scaling_governor": "\0\xff", f"{CPU}/cpufreq/boost": "maybe"}
    assert frequencies(machine(files), (0,), [{"cpu mhz": text}]) == {}


def test_powersave_that_pins_the_lowest_frequency_is_flagged() -> None:
    wrong = governor_warning({"governor": "powersave", "scaling_driver": "acpi-cpufreq"})
    assert wrong is not None
    assert wrong.code == "degraded"
    assert governor_warning({"governor": "performance", "scaling_driver": "acpi-cpufreq"}) is None
    assert governor_warning({"governor": "powersave"}) is None


def test_a_cpu_is_held_to_its_own_base_frequency(machine: Machine) -> None:
    files = {}
    for cpu, most, allowed, base in (
        (0, 5_000_000, 5_000_000, 3_600_000),
        (1, 5_000_000, 3_500_000, 3_600_000),
        (2, 3_800_000, 3_500_000, 2_700_000),  # below the others' base, above its own
        (3, 2_000_000, 900_000, 0),
        (4, 2_000_000, 1_000_000, 0),
    ):
        folder = f"{CPU}/cpufreq/policy{cpu}"
        files[f"{folder}/cpuinfo_max_freq"] = str(most)
        files[f"{folder}/scaling_max_freq"] = str(allowed)
        if base:
            files[f"{CPU}/cpu{cpu}/cpufreq/base_frequency"] = str(base)
    facts = frequencies(machine(files), tuple(range(5)))

    assert facts["capped_cpus"] == "1-4"
    assert facts["held_cpus"] == "1,3"
