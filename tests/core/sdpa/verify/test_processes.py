"""How the processes of a check are started."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.isolation.service import Lost, Service
from mlbackends.sdpa.verify.processes import Plan, Processes, program_command

if TYPE_CHECKING:
    from pathlib import Path


def test_a_program_of_another_interpreter_sees_no_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    program = tmp_path / "program.py"
    program.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]), flush=True)\n")
    monkeypatch.chdir(tmp_path)
    command = program_command(sys.executable, str(program), ("a b", "'"))
    service = Service(command, os.environ, str(tmp_path / "errors"))

    with pytest.raises(Lost) as caught:  # a list is no answer, but it got so far
        service.ask({}, 30)
    assert "mine" not in str(caught.value)
    service.stop()


def test_a_lower_processor_is_said_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os; input(); value = os.environ.get('ATEN_CPU_CAPABILITY', '');"
        ' print(\'{"value": "%s"}\' % value, flush=True)'
    )
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(Processes, "_command", lambda *_: [sys.executable, "-c", program])
    processes = Processes(Plan(), str(tmp_path))

    assert processes.ask("math", "avx2", {}) == {"value": "avx2"}
    assert processes.ask("math", "", {}) == {"value": ""}
    processes.stop()
