"""README and docs/: what is to be typed can be typed, links lead somewhere, pictures are fresh."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import click
import pytest
from markdown_it import MarkdownIt

from mlbackends.audit.catalogue import codes
from mlbackends_cli.lazy import contexts
from mlbackends_cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PICTURES = ROOT / "docs" / "pictures"


def tokens(name: str) -> list[Token]:
    text = (ROOT / name).read_text("utf-8")
    return MarkdownIt().enable("table").parse(text)


def calls(name: str, *, in_text: bool = False) -> Iterator[list[str]]:
    """Yield the words of every call of `backends` in a page's blocks of code, or in its text."""
    lines: list[str] = []
    for token in tokens(name):
        if in_text:
            lines += [child.content for child in token.children or () if child.type == "code_inline"]
        elif token.type == "fence" and token.info in {"sh", "console"}:
            lines += token.content.replace("\\\n", " ").splitlines()
    for line in dict.fromkeys(lines):
        if re.match(r"(\$ )?backends [a-z]", line):
            found = shlex.split(line.removeprefix("$ "), comments=True)[1:]
            end = next((at for at, word in enumerate(found) if word in {"|", "&&"}), len(found))
            if not any(re.fullmatch(r"[A-Z]+", word) for word in found):  # FILE stands for one
                yield found[:end]


@pytest.mark.parametrize("in_text", [False, True], ids=["blocks", "text"])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_tells_to_type_has_the_commands_and_options(name: str, in_text: bool) -> None:
    for words in calls(name, in_text=in_text):
        *above, found = contexts(main, tuple(words))
        rest = words[len(above) :]
        if "--help" in rest or (isinstance(found.command, click.Group) and not rest):
            continue
        try:
            context = found.command.make_context(found.info_name, [*rest], parent=found.parent)
            context.close()
        except (click.MissingParameter, click.BadOptionUsage):
            assert in_text, f"{name}: backends {' '.join(words)}"  # a sentence may leave values out
        except click.ClickException as error:
            pytest.fail(f"{name}: backends {' '.join(words)}: {error.format_message()}")


#: What the words of the pages stand for where they are run.
STANDS_FOR = {
    **{
        f"/etc/kubernetes/node-feature-discovery/features.d/backends-{name}": name
        for name in ("info", "doctor")
    },
    "DIR": str(ROOT / "tests/hosts/slurm-job.machine"),
    "~/venv/bin/python": sys.executable,
    "4242": str(os.getpid()),
    "reports/": str(ROOT / "tests/reports"),
    "1,8,512,64": "1,2,32,16",
    "1,8,2048,64": "1,2,64,16",
    "2,8,1024,64": "1,2,64,16",
}
#: These watch, trace or start what is not here, need a GPU, a cluster or an index, or are files of a page.
LEFT_OUT = {
    *("train.py", "serve.py", "top", "cuda", "cuda:1", "./build/_C.so"),
    *("--hosts", "--slurm", "--mpi", "--ray", "--dask", "--platform"),
    *("--resume", "history", "prune", "reports/@41", "reports/@2026-11-03"),  # of kept runs
    *("@rack", "@local:rack*", "partition", "feature", "partition=nodes.txt"),  # of ClusterShell and Slurm
}
#: So that a machine with much to do is not timed.
FASTER = {"check": ["--rounds", "0"], "bench": ["--rounds", "1"]}
LOGS = ("run.log", "before.log", "after.log")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    for name in LOGS:
        shutil.copy(ROOT / "tests/traces/torch-2.13-onednn-level2.log", folder / name)
    model: dict[str, object] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
    }
    model |= {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "head_dim": 128}
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "transformer").mkdir()
    model = {"_class_name": "FluxTransformer2DModel", "num_attention_heads": 24, "attention_head_dim": 128}
    (folder / "transformer/config.json").write_text(json.dumps(model))
    for name in ("issue.txt", "issue.md"):
        (folder / name).write_text("ModuleNotFoundError: No module named 'torch'\n")
    (folder / "run.toml").write_text("[cudnn]\nbenchmark = true\n")
    waived = '[[waive]]\nhazard = "cpu-quota-below-threads"\nreason = "planned"\n'
    (folder / "expected.toml").write_text(waived)
    run(["audit", "--init", "--output", "before.toml", "--depth", "found"], folder)
    shutil.copy(folder / "before.toml", folder / "backends.toml")
    run(["info", "--depth=found", "--format=json", "--output", "report.json"], folder)
    for name in ("old", "new"):
        (folder / name / "bin").mkdir(parents=True)
        (folder / name / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / name / "bin" / "python").chmod(0o755)
    for name in ("baseline.json", "then.json"):
        shutil.copy(folder / "report.json", folder / name)
    return folder


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlbackends", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "docs/ci.md"])
def test_what_a_page_tells_to_type_answers(name: str, place: Path) -> None:
    """In the page's order: what one command writes another one reads. test_ci_files has docs/ci.md's."""
    before = [words for page in NAMES[: NAMES.index(name)] for words in calls(page)]
    for words in calls(name):
        if words in before or LEFT_OUT & {*words} or words[0] in {"run", "completion", "help"}:
            continue
        given = [STANDS_FOR.get(word, word) for word in words]
        if given[0] == "sdpa" and "--from" not in given:
            given += FASTER.get(given[1], [])
        for at, word in enumerate(given[:-1]):
            if word == "--output" or words[0] == "snapshot":
                (place / given[at + 1]).unlink(missing_ok=True)

        done = run(given, place)

        assert done.returncode in {0, 1}, (words, done.stderr)
        assert "Traceback" not in done.stderr


# ---- links and pictures --------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found = tokens(str(page.relative_to(ROOT)))
    headings = [found[at + 1].content for at, token in enumerate(found) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    inside = [child for token in tokens(name) for child in token.children or ()]
    links = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in inside]
    for link in filter(None, links):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name}: {link}"
        assert not anchor or anchor in anchors(target.resolve()), f"{name}: {link}"


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")

    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def test_the_readme_is_short_and_counts_right() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    assert len(readme.split()) < 600
    assert f"{len(codes())} hazards" in readme


def test_the_pictures_are_what_the_commands_print() -> None:
    spec = importlib.util.spec_from_file_location("make", PICTURES / "make.py")
    assert spec is not None and spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)

    old = [name for name in make.PICTURES if make.outdated(name, write=False)]

    assert not old, "python docs/pictures/make.py --write draws them anew"


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda file: file.stem)
def test_a_picture_is_small_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text("utf-8")

    assert len(text) < 60_000
    assert not {node.tag.rpartition("}")[2] for node in ET.fromstring(text).iter()} & {"script"}
    assert not re.search(r"@import|@font-face|url\((?!#)|\bon\w+=", text)
    assert "prefers-color-scheme:dark" in text


def test_what_an_index_shows_of_the_readme_has_no_picture_and_no_link_to_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hatchling = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", hatchling)
    monkeypatch.syspath_prepend(str(ROOT / "kernels/builder"))
    shown = importlib.import_module("readme").for_an_index((ROOT / "README.md").read_text())

    assert "](docs/" not in shown and "![" not in shown
    assert "More: docs/info.md." in shown
