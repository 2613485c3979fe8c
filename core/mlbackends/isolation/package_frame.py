"""Import a package in its own interpreter, run the check of its probe, and write what came of it.

`package_check` has the interpreter that is inspected run this file. Its folder is not on sys.path there: it
uses the standard library alone, as Python 3.6 has it; a check uses its package besides.
"""

import importlib
import json
import os
import re
import runpy
import sys
from typing import Any, Callable, NoReturn  # noqa: UP035  Python 3.8 has no other

#: What the fact `accelerators` has for one that works.
STARTS = "starts"


class Child:
    """What `check` gets: it leaves `facts`, and computes for seconds only if `deep`.

    computes: whether the check calls `judge` at all, as its file declares.
    """

    def __init__(self, seal: str, deep: bool) -> None:
        self.facts: dict[str, Any] = {}
        self.deep, self.computed, self.computes = deep, False, False
        self._seal, self._output = seal, os.dup(1)
        os.dup2(2, 1)

    def end(self, *reason: str) -> NoReturn:
        """Write the answer and end the process. reason: a code and a message where something failed."""
        answer = {"facts": self.facts, "reason": reason or None, "computed": self.computed}
        answer["computes"] = self.computes
        os.write(self._output, f"\n{self._seal}{json.dumps(answer)}\n".encode())
        os._exit(0)

    def judge(self, is_right: bool, message: str) -> None:
        """Note that a result is right, or end with the message."""
        if not is_right:
            self.end("wrong-result", message)
        self.computed = True

    def imports(self, module: str) -> None:
        """Import a module; end with the reason where that fails."""
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  a package may raise anything
            words = _words(error)
            closed = sorted(_closed(words, module))
            self.end("import-failed", words + f"; this user may not read {', '.join(closed)}" * bool(closed))

    def starts(self, accelerator: str, call: Callable[[], object]) -> bool:
        """Record whether a call for an accelerator succeeds, else the loader's words, and return it."""
        ours, pipe = os.dup(2), os.pipe()
        os.write(pipe[1], b"\n")
        if os.name != "nt":  # there a full pipe would stop the library
            os.set_blocking(pipe[1], False)
            os.dup2(pipe[1], 2)
        why = ""
        try:
            if not call():
                why = "it is not offered"
        except BaseException as error:  # noqa: BLE001  a package may raise anything
            why = _words(error)
        finally:
            os.dup2(ours, 2)
            os.close(pipe[1])
        if why:
            printed = os.read(pipe[0], 65536).decode(errors="replace")
            text = re.sub(r"\x1b\[[0-9;]*m", "", f"{why}\n{printed}")
            complaint = re.search(r"[^\n]*([Ee]rror|[Ff]ailed|[Cc]annot|[Cc]ould not)[^\n]*", text)
            why = _of_loader(text) or (complaint.group() if complaint else why)
            # A line of a log begins with its time, and with where it was written.
            why = " ".join(re.sub(r"^\S.*?\.cc:\d+\] ", "", why).split())[:300]
        self.facts.setdefault("accelerators", {})[accelerator] = why or STARTS
        return not why


def _of_loader(text: str) -> str:
    """Return the loader's complaint in a text, or ""."""
    pattern = r"[^\s\"]+: (cannot open shared|undefined symbol|file too short|invalid ELF)[^\n]*"
    match = re.search(pattern, text)
    return match.group() if match else ""


def _words(error: BaseException) -> str:
    """Return the error that began it: numpy and others wrap the loader's words in pages of advice."""
    while isinstance(error, (ImportError, OSError)) and not isinstance(error, ModuleNotFoundError):
        first = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if not isinstance(first, (ImportError, OSError)):
            break
        error = first
    text = str(error)
    text = " ".join((_of_loader(text) if len(text) > 300 else text).split() or text.split())[:500]
    return type(error).__name__ + (f": {text}" if text else "")


def _closed(words: str, module: str) -> set[str]:
    """Return the folders that this user may not read and that the words of a failed import are about.

    Python takes such a folder for a package without files, and the loader passes over it.
    """
    candidates = set()
    for start in filter(os.path.isdir, sys.path):
        for named in re.findall(r"(?:No module named|from|module) '([\w.]+)'", words):
            parts = named.split(".")
            paths = [os.path.join(start, *parts[: count + 1]) for count in range(len(parts))]
            candidates |= {*paths, paths[0] + ".libs"}
        if "cannot open shared object file: No such file" in words:
            for folder in (start, os.path.join(start, module.partition(".")[0])):
                if os.path.isdir(folder) and os.access(folder, os.R_OK):
                    candidates |= {os.path.join(folder, name) for name in os.listdir(folder)}
    return {path for path in candidates if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK)}


def _main(module: str, check: str, seal: str, deep: str) -> None:
    """Import a module, and run a file's `check`, if there is one. deep: "" for no."""
    child = Child(seal, bool(deep))
    child.imports(module)
    try:
        if check:
            names = runpy.run_path(check)
            child.computes = names.get("COMPUTES", False)
            names["check"](child)
    except (AttributeError, NameError, TypeError) as error:  # another release's interface
        if deep:
            child.end("call-failed", _words(error))
    except BaseException as error:  # noqa: BLE001  a package may raise anything
        child.end("call-failed", _words(error))
    child.end()


if __name__ == "__main__":
    arguments = sys.argv[2:]
    del sys.argv[1:]  # a package may read them
    _main(*arguments)
