"""The import hook, in programs of its own, with a torch made small."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mlbackends.inject.start import HOOK_FOLDER

HOOK = Path(HOOK_FOLDER)
STEPS = [
    {
        "name": "cudnn.benchmark",
        "value": True,
        "argument": True,
        "attribute": "torch.backends.cudnn.benchmark",
        "reads": [["torch.backends.cudnn.benchmark", True]],
    }
]
SHOW = "import torch; print(torch.backends.cudnn.benchmark)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a torch of one switch in it."""
    backends = tmp_path / "torch" / "backends"
    backends.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(
        "import time\n"
        "__version__ = '9.9'\n"
        "executed = globals().get('executed', 0) + 1\n"
        "import torch.backends.cudnn\n"
        "time.sleep(0.05)\n"
    )
    (tmp_path / "torch" / "nn.py").write_text("import torch\nseen = torch.backends.cudnn.benchmark\n")
    (backends / "__init__.py").write_text("")
    (backends / "cudnn.py").write_text("benchmark = False\nenabled = True\n")
    return tmp_path


def python(
    folder: Path,
    code: str,
    *options: str,
    steps: object = STEPS,
    path: str = "",
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code with the hook in front of the folder on the import path."""
    entries = [str(HOOK), *([path] if path else []), str(folder)]
    variables = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(entries),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MLBACKENDS_CARRIED": json.dumps(steps) if steps else "",
        **(environment or {}),
    }
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.split()


@pytest.mark.parametrize("file", ["sitecustomize.py", "applying.py"])
def test_the_files_are_for_any_python_from_3_6_and_import_nothing_of_ours(file: str) -> None:
    text = (HOOK / file).read_text()
    ast.parse(text, feature_version=(3, 6))
    assert "mlbackends." not in text.replace("_mlbackends_applying", "")


def test_a_program_sees_the_switch_as_soon_as_it_has_torch(folder: Path) -> None:
    assert answer(python(folder, SHOW)) == ["True"]


def test_a_module_below_torch_sees_it_too_when_it_is_imported_first(folder: Path) -> None:
    assert answer(python(folder, "import torch.nn; print(torch.nn.seen)")) == ["True"]
    assert answer(python(folder, "from torch import nn; print(nn.seen)")) == ["True"]


def test_threads_that_import_at_once_all_see_it(folder: Path) -> None:
    code = """
        import threading
        seen, start = [], threading.Barrier(8)
        def look():
            start.wait()
            import torch
            seen.append((torch.backends.cudnn.benchmark, torch.executed))
        threads = [threading.Thread(target=look) for _ in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        print(set(seen) == {(True, 1)}, len(seen))
    """
    assert answer(python(folder, code)) == ["True", "8"]


def test_what_the_program_sets_stays_over_a_reload(folder: Path) -> None:
    code = """
        import importlib, torch
        torch.backends.cudnn.benchmark = False
        importlib.reload(torch)
        print(torch.executed, torch.backends.cudnn.benchmark)
    """
    assert answer(python(folder, code)) == ["2", "False"]


def test_a_lazy_import_gets_it_when_it_is_made(folder: Path) -> None:
    code = """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(torch)
        print(torch.backends.cudnn.benchmark)
    """
    assert answer(python(folder, code)) == ["True"]


def test_looking_for_torch_without_importing_it_changes_nothing(folder: Path) -> None:
    code = f"import importlib.util; print(bool(importlib.util.find_spec('torch'))); {SHOW}"
    assert answer(python(folder, code)) == ["True", "True"]


def test_an_import_that_fails_is_tried_again(folder: Path) -> None:
    (folder / "torch" / "__init__.py").write_text(
        "import os\n"
        "if not os.environ.pop('SECOND', ''):\n"
        "    os.environ['SECOND'] = '1'\n"
        "    raise ImportError('not now')\n"
        "import torch.backends.cudnn\n"
    )
    code = """
        try:
            import torch
        except ImportError as error:
            print(str(error).replace(" ", "-"))
        import torch
        print(torch.backends.cudnn.benchmark)
    """
    assert answer(python(folder, code)) == ["not-now", "True"]


def test_torch_keeps_its_loader_and_the_program_its_finders(folder: Path) -> None:
    code = """
        import sys, inspect, torch
        print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
        print("exec_module" in vars(torch.__loader__), len(inspect.getsource(torch)) > 0)
        print([each for each in sys.meta_path if "sitecustomize" in repr(each)])
    """
    words = ["SourceFileLoader", "SourceFileLoader", "False", "True", "[]"]
    assert answer(python(folder, code)) == words


def test_another_hook_that_wraps_what_it_finds_goes_with_ours(folder: Path) -> None:
    code = """
        import sys, importlib.util
        class Wrapping:
            busy = False
            def find_spec(self, name, path=None, target=None):
                if name != "torch" or self.busy:
                    return None
                self.busy = True
                try:
                    return importlib.util.find_spec(name)
                finally:
                    self.busy = False
        sys.meta_path.insert({place}, Wrapping())
        import torch
        print(torch.backends.cudnn.benchmark)
    """
    for place in ("0", "1", "len(sys.meta_path)"):
        assert answer(python(folder, code.format(place=place))) == ["True"]


def test_a_torch_in_a_zip_file_gets_it(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    import shutil

    archive = shutil.make_archive(str(tmp_path_factory.mktemp("zip") / "packed"), "zip", folder)
    assert answer(python(Path(archive), SHOW)) == ["True"]


def test_a_loader_that_is_a_class_gets_it(folder: Path) -> None:
    code = """
        import sys, importlib.machinery
        class Frozen:
            def create_module(spec): return None
            def exec_module(module):
                import types
                module.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))
        class Finder:
            def find_spec(name, path=None, target=None):
                return importlib.machinery.ModuleSpec(name, Frozen) if name == "torch" else None
        sys.meta_path.append(Finder)
        import torch
        print(torch.backends.cudnn.benchmark, Frozen.exec_module.__name__)
    """
    assert answer(python(folder / "nothing", code)) == ["True", "exec_module"]


def test_a_folder_called_torch_is_no_torch(folder: Path) -> None:
    (folder / "empty" / "torch").mkdir(parents=True)
    assert answer(python(folder / "empty", "import torch; print(torch.__path__ != 0)")) == ["True"]


def test_a_torch_that_a_pth_file_has_imported_gets_it(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("")
    before = folder / "before"
    before.mkdir()
    (before / "sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(folder)!r}); import torch, runpy\n"
        f"runpy.run_path({str(HOOK / 'sitecustomize.py')!r}, run_name='other')\n"
    )
    done = python(folder, SHOW, environment={"PYTHONPATH": f"{before}{os.pathsep}{folder}"})
    assert answer(done) == ["True"]


def test_the_program_s_own_import_path_is_clean_and_its_children_s_is_not(folder: Path) -> None:
    code = f"""
        import os, sys
        print({str(HOOK)!r} in sys.path, os.environ["PYTHONPATH"].startswith({str(HOOK)!r}))
        print("json" in sys.modules, "mlbackends" in sys.modules, "importlib.util" in sys.modules)
    """
    shown = answer(python(folder, code, "-X", "frozen_modules=on"))
    assert shown[:4] == ["False", "True", "False", "False"]


def test_a_child_gets_it_by_subprocess_and_by_multiprocessing(folder: Path) -> None:
    program = folder / "program.py"
    program.write_text(
        "import multiprocessing, subprocess, sys\n"
        "def look():\n"
        "    import torch\n"
        "    print(torch.backends.cudnn.benchmark, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    for method in ('spawn', 'fork', 'forkserver'):\n"
        "        child = multiprocessing.get_context(method).Process(target=look)\n"
        "        child.start(), child.join()\n"
        f"    subprocess.run([sys.executable, '-c', {SHOW!r}], check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={
            "PYTHONPATH": f"{HOOK}{os.pathsep}{folder}",
            "MLBACKENDS_CARRIED": json.dumps(STEPS),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer(done) == ["True"] * 4


def test_a_program_that_empties_its_environment_keeps_it(folder: Path) -> None:
    assert answer(python(folder, f"import os; os.environ.clear(); {SHOW}")) == ["True"]


# ---- the sitecustomize that is the program's own ------------------------------


def test_the_program_s_own_sitecustomize_runs_in_its_place(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__\n")
    code = f"import sitecustomize; print(mine == sitecustomize.__file__, mine); {SHOW}"
    assert answer(python(folder, code)) == ["True", str(folder / "sitecustomize.py"), "True"]


def test_it_runs_also_where_no_switch_is_carried(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('mine')\n")
    assert answer(python(folder, SHOW, steps=None)) == ["mine", "False"]


def test_it_may_import_torch_itself(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import torch; print(torch.backends.cudnn.benchmark)\n")
    assert answer(python(folder, "")) == ["True"]


def test_an_error_in_it_is_told_as_python_tells_it_and_the_program_goes_on(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import nosuch\n")
    alone = python(folder, SHOW, steps=None, environment={"PYTHONPATH": str(folder)})
    done = python(folder, SHOW)
    assert done.stderr == alone.stderr != ""
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_without_one_nothing_is_said(folder: Path) -> None:
    assert answer(python(folder, "import sys; print('torch' in sys.modules)")) == ["False"]


# ---- what cannot be applied ---------------------------------------------------


def step(**changes: object) -> list[dict[str, object]]:
    return [{**STEPS[0], **changes}]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (step(attribute="torch.backends.cudnn.nosuch"), "it has no torch.backends.cudnn.nosuch"),
        (step(attribute="torch.nosuch.cudnn.x"), "it has no torch.nosuch.cudnn.x"),
        (step(attribute="", call="torch.backends.cudnn.f"), "it has no torch.backends.cudnn.f"),
        (step(reads=[["torch.backends.cudnn.nosuch", 1]]), "it has no torch.backends.cudnn.nosuch"),
        (step(argument=False), "torch.backends.cudnn.benchmark is false there"),
        (step(argument=1), "torch.backends.cudnn.benchmark is 1 there"),
        (step(attribute="", call="torch.backends.cudnn.enabled"), "it raised TypeError: "),
    ],
)  # fmt: skip
def test_a_switch_that_does_not_hold_ends_the_program_with_one_line(
    folder: Path, steps: object, said: str
) -> None:
    code = """
        print("before")
        try:
            import torch
        except BaseException:
            pass
        print("after")
    """
    done = python(folder, code, steps=steps)
    assert (done.returncode, done.stdout) == (2, "before\n")
    assert done.stderr.startswith(
        f"backends run: cudnn.benchmark=true cannot be applied to torch 9.9: {said}"
    )
    assert done.stderr.count("\n") == 1


def test_it_ends_the_program_from_any_thread(folder: Path) -> None:
    code = """
        import threading
        thread = threading.Thread(target=__import__, args=("torch",))
        thread.start(), thread.join()
        print("after")
    """
    done = python(folder, code, steps=step(argument=False))
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("text", ["x", "3", "[3]", '{"a": 1}'])
def test_a_variable_that_holds_nonsense_ends_the_program_with_one_line(folder: Path, text: str) -> None:
    done = python(folder, SHOW, environment={"MLBACKENDS_CARRIED": text})
    assert done.stderr.startswith("backends run: the switches cannot be applied: ")
    assert done.stderr.count("\n") == 1
    assert (done.returncode, done.stdout) == (2, "")


def test_a_later_switch_that_undoes_an_earlier_is_found(folder: Path) -> None:
    undoing = {
        "name": "cudnn.enabled",
        "value": 1,
        "argument": False,
        "attribute": STEPS[0]["attribute"],
    }
    done = python(folder, SHOW, steps=[*STEPS, undoing])
    assert done.returncode == 2
    assert "cudnn.benchmark is false there" in done.stderr


def test_a_warning_of_torch_is_no_error_in_a_strict_program(folder: Path) -> None:
    (folder / "torch" / "backends" / "cudnn.py").write_text(
        "import warnings\n"
        "benchmark = False\n"
        "def switch(value):\n"
        "    global benchmark\n"
        "    warnings.warn('old')\n"
        "    benchmark = value\n"
    )
    steps = step(attribute="", call="torch.backends.cudnn.switch")
    assert answer(python(folder, SHOW, "-W", "error", steps=steps)) == ["True"]


def test_on_amd_the_blas_library_is_not_asked_for_since_that_starts_the_gpus(folder: Path) -> None:
    init = folder / "torch" / "__init__.py"
    init.write_text(init.read_text() + "import torch.version, torch.backends.cuda\n")
    (folder / "torch" / "version.py").write_text("hip = '6.4'\n")
    (folder / "torch" / "backends" / "cuda.py").write_text(
        "asked = []\ndef preferred_blas_library(backend=None):\n    asked.append(backend)\n    return 'ck'\n"
    )
    path = "torch.backends.cuda.preferred_blas_library"
    steps = step(attribute="", call=path, argument="ck", reads=[[path, "ck"]])
    assert answer(python(folder, "import torch; print(torch.backends.cuda.asked)", steps=steps)) == ["['ck']"]


def test_what_was_found_of_torch_before_its_import_can_be_copied(folder: Path) -> None:
    copied = "import copy, importlib.util as u; print(copy.deepcopy(u.find_spec('torch')).origin)"
    done = python(folder, f"{copied}\n{SHOW}")
    assert done.stdout.split() == [str(folder / "torch" / "__init__.py"), "True"], done.stderr
