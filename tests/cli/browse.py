"""Open each kind of page in Chromium: ``python tests/cli/browse.py [CHROMIUM]``.

axe finds nothing, light and dark, on a phone and on a laptop; nothing is wider than the window or the
sheet; what is reached by the Tab key is seen to be. Needs axe-playwright-python, which brings axe-core.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parents[1]
HOSTS = TESTS / "hosts"
ROOMY, BROKEN = (
    str(HOSTS / "docker-geforce-compat.machine"),
    str(HOSTS / "gpu-server-degraded.machine"),
)
PAGES: dict[str, tuple[str, ...]] = {
    "info": ("info", "--root", BROKEN),
    "doctor": ("doctor", BROKEN, "--fail-on", "never"),
    "audit": ("audit", ROOMY, "--policy", "POLICY", "--fail-on", "never"),
    "diff": ("diff", ROOMY, BROKEN, "--fail-on", "never"),
    "the same": ("diff", ROOMY, ROOMY),
    "fleet": ("fleet", "summarize", str(TESTS / "reports"), "--hazards"),
    "trace": ("trace", "show", str(TESTS / "traces/torch-2.13-onednn-all-timestamp.log")),
    "check": ("sdpa", "check", "--shape", "1,2,64,32"),
    "bench": ("sdpa", "bench", "--shape", "1,2,64,32", "--shape", "1,2,128,32"),
}
POLICY = """schema = 1
name = "browse"
[[rule]]
id = "cores"
fact = "cpu.cores"
min = 1024
hint = "take a larger one"
[[rule]]
id = "architecture"
fact = "cpu.architecture"
equals = "x86_64"
[[rule]]
id = "gaudi"
fact = "gaudi.card_count"
min = 1
severity = "note"
"""
# Light and dark differ in colours alone, widths in what scrolls: two looks pass all rules, the others these.
RULES = ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]
LOOKS = ((390, "light", None), (390, "dark", RULES), (1280, "light", RULES), (1280, "dark", None))
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true })"
FOLD = UNFOLD.replace("true", "false")
HIDDEN = """[...document.querySelectorAll("details .inside > *")]
    .filter(one => !one.checkVisibility()).length"""
TWICE = """[...document.querySelectorAll("section")].filter(section =>
    [...section.querySelectorAll("figure")].filter(one => one.checkVisibility()).length > 1).length"""
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"


def write(folder: Path, name: str) -> Path:
    """Write a page, by the command that a user types, and return where it is."""
    (folder / "POLICY").write_text(POLICY)
    path = folder / f"{name}.html"
    command = [str(Path(sys.executable).with_name("backends")), *PAGES[name]]
    options = ["--format", "html", "--output", str(path)]
    subprocess.run([*command, *options], cwd=folder, check=True, timeout=60)
    return path


def faults(page: Any) -> Iterator[str]:
    """Yield what is wrong with the page that a browser shows."""
    page.keyboard.press("Tab")
    if page.evaluate(OUTLINE) == "none" and page.evaluate("document.activeElement.tagName") != "BODY":
        yield "what has the focus does not show it"
    for folded in (True, False):
        if not folded:
            page.evaluate(UNFOLD)
        for width in (390, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            if excess := page.evaluate(TOO_WIDE):
                yield f"{excess} pixels wider than {width}, {'folded' if folded else 'unfolded'}"
            if page.evaluate(TWICE):
                yield f"a picture is shown twice at {width}"
    for width, scheme, rules in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        for violation in page.evaluate("options => axe.run(options)", options)["violations"]:
            node = violation["nodes"][0]
            where = f"{width} {scheme}: {violation['id']} × {len(violation['nodes'])}"
            yield f"{where}: {node['html'][:200]}: {node['failureSummary']}"
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 690, "height": 1000})  # A4 without its margins
    page.evaluate(FOLD)
    if hidden := page.evaluate(HIDDEN):
        yield f"{hidden} parts that are folded are missing on a sheet"
    if excess := page.evaluate(TOO_WIDE):
        yield f"{excess} pixels wider than a sheet"
    if page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)":
        yield "a sheet is not white"


def main(chromium: str) -> int:
    """Print what is wrong with each page, and return how much that is."""
    from playwright.sync_api import sync_playwright

    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    count = 0
    with tempfile.TemporaryDirectory() as name, sync_playwright() as browsers:
        with ThreadPoolExecutor(2) as pool:
            paths = dict(zip(PAGES, pool.map(lambda page: write(Path(name), page), PAGES), strict=True))
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(bypass_csp=True, reduced_motion="reduce").new_page()
        for title, path in paths.items():
            page.emulate_media(media="screen", color_scheme="light")
            page.goto(path.as_uri())
            page.evaluate(axe)
            found = list(faults(page))
            count += len(found)
            print(f"{title}: {len(found) or 'nothing'} wrong", *found, sep="\n  ")
        browser.close()
    return min(count, 100)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["/usr/bin/chromium"])))
