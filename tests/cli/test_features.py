"""What schedulers choose nodes by: labels of Kubernetes and features of Slurm."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import backends

from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report
from mlbackends_cli import formats
from mlbackends_cli.report.commands.info import node_features
from mlbackends_cli.terminal import Page

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
HGX = str(HOSTS / "hgx-h100-eight-gpus.machine")
FACTS = {
    "cpu": ("capability", "microarchitecture", "architecture", "vendor_id", "family"),
    "host": ("kernel_release", "libc_version", "host_name", "platform"),
    "nvidia": ("driver_release", "cuda_version"),
}


def report(facts: dict[str, dict[str, Any]], devices: tuple[Device, ...] = ()) -> Report:
    probes = {name: ProbeReport(Presence.FOUND, facts=fact) for name, fact in facts.items()}
    probes["nvidia"] = ProbeReport(Presence.FOUND, facts=facts.get("nvidia", {}), devices=devices)
    return Report(SCHEMA, "b 1", Presence.FOUND, "/", "2026-01-02T12:00:00Z", 0.0, False, probes)


def info(form: str, *arguments: str) -> str:
    done = backends("info", "--root", HGX, "--format", form, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_labels_of_a_machine() -> None:
    found = info("nfd")

    assert "\n# +expiry-time=" in found
    assert "\nfeature.node.kubernetes.io/backends.cpu.capability=AVX512\n" in found
    assert "\nfeature.node.kubernetes.io/backends.nvidia.devices=8\n" in found
    assert "\nfeature.node.kubernetes.io/backends.nvidia.devices.name=NVIDIA-H100-80GB-HBM3\n" in found
    assert re.search(r"/backends\.fingerprint=1-[0-9a-f]{16}\n", found)


def test_the_features_of_a_machine() -> None:
    found = info("slurm")

    assert re.fullmatch(
        r"avx512,sapphire_rapids,kernel_5\.15\.0_122_generic,libc_2\.35,nvidia_560\.35\.03,"
        r"nvidia_h100_80gb_hbm3,8x_nvidia_h100_80gb_hbm3,fp_1_[0-9a-f]{16}\n",
        found,
    )


def test_unlike_cards_have_no_common_name_and_instances_are_no_cards() -> None:
    devices = (
        Device(index=0, kind="cuda", name="A"),
        Device(index=1, kind="cuda", name="B"),
        Device(index=2, kind="mig", name="A MIG 1g"),
    )
    found = formats.text("nfd", "report", report({}, devices), Page())

    assert "backends.nvidia.devices=2\n" in found
    assert "devices.name" not in found


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=90)


@given(st.fixed_dictionaries({
    probe: st.fixed_dictionaries(dict.fromkeys(names, _TEXTS)) for probe, names in FACTS.items()
}), _TEXTS)  # fmt: skip
def test_any_facts_are_words(facts: dict[str, dict[str, str]], name: str) -> None:
    found = report(facts, (Device(index=0, kind="cuda", name=name),))
    label = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

    for line in formats.text("nfd", "report", found, Page()).splitlines()[2:]:
        assert re.fullmatch(rf"feature\.node\.kubernetes\.io/{label}={label}", line), line
    for feature in node_features(found).split(","):
        assert re.fullmatch(r"[a-z0-9._]+", feature), feature


@pytest.mark.skipif(os.name == "nt", reason="no modes of files")
def test_a_collector_may_read_its_file_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for form, mode in (("prometheus", 0o644), ("nfd", 0o644), ("json", 0o600)):
            for _ in range(2):  # the second time it is there
                backends("doctor", HGX, "--format", form, "--output", str(tmp_path / form))

            assert stat.S_IMODE((tmp_path / form).stat().st_mode) == mode
    finally:
        os.umask(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["json", "nfd", "prometheus"]
