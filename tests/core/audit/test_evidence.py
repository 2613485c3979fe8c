"""What a finding was seen by can be asked for: each piece of evidence has a dotted name of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.host.declared import facts_of
from mlbackends.survey import dotted

TESTS = Path(__file__).resolve().parents[2]
SUBJECTS = (
    "hosts/broken-environment.machine", "hosts/ci-leftovers.machine", "hosts/cluster-modules-node.machine",
    "hosts/docker-cgroup1.machine", "hosts/epyc-eight-nodes.machine", "hosts/gpu-server-degraded.machine",
    "hosts/kvm-guest-without-l3.machine", "hosts/stale-conda-workstation.machine",
    "hosts/untuned-slurm-node.machine", "reports/hgx-h100-failing.json", "reports/slurm-job-mig.json",
)  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS)
def test_evidence_is_what_its_dotted_name_gets_or_a_part_of_it(subject: str) -> None:
    report = report_of(str(TESTS / subject), redact=False)

    seen = 0
    for check in examine(report).checks:
        for name, value in check.evidence.items():
            seen += 1
            try:
                whole: Any = dotted.value(report, name, tuple(facts_of(name.partition(".")[0])))
            except dotted.NoValue:
                whole = None
            is_part = isinstance(value, list) and all(item in (whole or ()) for item in value)
            # What is not there is evidence too.
            assert whole == value or is_part or (whole is None and not value), (check.code, name)
    assert seen
