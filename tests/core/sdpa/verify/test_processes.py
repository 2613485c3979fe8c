"""How the processes of a check are started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mlbackends.isolation.service import Lost, Service
from mlbackends.sdpa.verify.processes import Plan, Processes, program_command


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
        service.send({}, 30)
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

    assert processes.send("math", "avx2", {}) == {"value": "avx2"}
    assert processes.send("math", "", {}) == {"value": ""}
    processes.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a process is stopped")
def test_the_others_are_stopped_while_one_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of threads that waits for work spins, on the CPU that the one needs which is timed."""
    program = (
        "import os, sys, threading\n"
        "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n"
        "for line in sys.stdin: print('{\"pid\": %d}' % os.getpid(), flush=True)"
    )
    monkeypatch.setattr(Processes, "_command", lambda *_: [sys.executable, "-c", program])
    processes = Processes(Plan(), str(tmp_path))

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    def waits(pid: int, wanted: str) -> bool:
        for _ in range(1000):
            if state(pid) in wanted:
                return True
            time.sleep(0.01)
        return False

    try:
        pids = {name: processes.send(name, "", {})["pid"] for name in ("math", "flash")}
        for name, other in (("math", "flash"), ("flash", "math")):
            assert processes.send_alone(name, "", {})["pid"] == pids[name]
            assert waits(pids[other], "T")
            assert waits(pids[name], "RS")
        assert processes.send("math", "", {})["pid"] == pids["math"]
        assert waits(pids["math"], "RS")
    finally:
        processes.stop()
