"""What is wrong with our pages, by axe-core and the Tab key, at two widths, light and dark.

    npm install --prefix /tmp/axe axe-core
    python scripts/check_accessibility.py --axe /tmp/axe/node_modules/axe-core/axe.min.js
    python scripts/check_accessibility.py report.html --axe /tmp/axe/node_modules/axe-core/axe.min.js

Without a page, one of every kind is made with the box (KINDS), and a model is served and asked. Without
Chromium on the PATH nothing is checked, and it says so. --pictures writes the pages as PNG files.
"""

import argparse
import base64
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bermo.cli import main as bermo
from bermo.printing import number_of
from tests.report.browser import CHROMIUM, Browser
from tests.trees import entities, treebank

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true })"
ASK_THE_SERVER = """new Promise((done, failed) => {
  setTimeout(() => failed(new Error("no answer within 20 seconds")), 20000);
  const look = setInterval(() => {
    if (document.querySelector("#about").textContent && !window.asked) {
      window.asked = true; document.querySelector("#ask").click();
    }
    if (!document.querySelector("#answers").hidden) { clearInterval(look); done(1); }
  }, 50);
})"""
"""The page of a server shows its table when it was asked."""
ASK = (
    "axe.run({resultTypes: ['violations']}).then(found =>"
    " JSON.stringify(found.violations.map(v => [v.id, v.help, v.nodes[0].html])))"
)
CONTROLS = "[...document.querySelectorAll('a[href],button,summary,select,textarea,[tabindex=\"0\"]')]"
"""All that a key must reach, in the order of the page."""
NAMED = "(e => `${e.tagName} ${(e.getAttribute('aria-label') || e.textContent).trim().slice(0, 60)}`)"
IS_SEEN = (
    "(() => { const s = getComputedStyle(document.activeElement);"
    " return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 })()"
)
TAB = 9
SECONDS = 600.0
"""axe reads a page of every kind of findings for minutes on a loaded machine."""
ROWS = ("a fine and honest film,1", "a dull and lifeless film,0", "two friends tell a warm story,1")
WRONG = ("a fine and honest film,0", "a dull and lifeless film,1")
"""Rows that a model gets wrong, so that there are mistakes to be shown."""
KINDS = {
    "training": ("train --train my.csv --valid my.csv --epochs 1 --out dense", "dense"),
    "pruning": (
        "train --train my.csv --valid my.csv --epochs 4 --prune movement --density 0.3 --out pruned",
        "pruned",
    ),
    "errors": ("evaluate pruned my.csv --against dense --figures errors", "errors"),
    "search": (
        "search --space lr=1e-5..1e-4 --train my.csv --valid my.csv --epochs 1 --trials 2 --out search",
        "search",
    ),
    "sentence": ('analyse dense --sentence "A dull film." --corpus texts.txt --out sentence', "sentence"),
    "knowledge": ("analyse box --measures knowledge,order --text texts.txt --out knowledge", "knowledge"),
    "maps": ("analyse dense --measures map --map texts --data my.csv --out maps", "maps"),
    "both": ("analyse dense pruned --data my.csv --rows 8 --out both", "both"),
    "grammar": (
        "analyse box --measures relations,attention --trees my.conllu --text texts.txt --out grammar",
        "grammar",
    ),
    "probe": ("probe --model box,dense --tasks tense,bigram-shift --limit 100 --out probe", "probe"),
    "words": (
        "probe --words my.conllu,names.txt --tasks upos,deprel,entity,tree --max-unknown 1 --out words",
        "words",
    ),
    "compress": (
        "compress dense --train my.csv --valid my.csv --size 10MB --quick --forms onnx,onnx-int8"
        " --batch 1,2 --lengths 8 --rounds 1 --out compress",
        "compress",
    ),
    "finetuned": (
        "probe --protocol finetune --tasks tense --limit 40 --seeds 1 --epochs 1 --out finetuned",
        "finetuned",
    ),
    "pretraining": (
        "pretrain --model box --text texts.txt --length 32 --held-out 0.2 --steps 6 --batch-size 4"
        " --out pretraining",
        "pretraining",
    ),
    "bench": ("bench dense pruned --batch 1,2 --lengths 8 --rounds 1 --data my.csv --out bench", "bench"),
    "atlas": (
        "atlas --train my.csv --valid my.csv --epochs 1 --methods movement,first-layers,tf-idf"
        " --batch 1,2 --lengths 8 --rounds 1 --pick 'smallest size' --out atlas",
        "atlas",
    ),
}
"""For each kind of page the command that makes its findings, and their folder."""
TOGETHER = ("dense", "errors", "sentence", "maps", "pretraining", "bench")
"""What stands on one page. A page of all kinds kept axe busy for more than a quarter of an hour."""


def make_pages(folder: Path) -> list[Path]:
    """Write one page of every kind, and one of several of them, as a user would."""
    rows = [f"{number} {row}" for number in range(40) for row in ROWS]
    rows += [f"{number} {row}" for number in range(40, 48) for row in WRONG]
    (folder / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (folder / "texts.txt").write_text("\n".join(row.partition(",")[0] for row in rows))
    (folder / "my.conllu").write_text(treebank(144))
    (folder / "names.txt").write_text(entities(60))
    with contextlib.chdir(folder):
        for command, _ in KINDS.values():
            _run(shlex.split(command))
        for name, (_, of_kind) in KINDS.items():
            _run(["report", of_kind, "--out", f"{name}.html"])
        _run(["report", *TOGETHER, "--out", "together.html"])
    return sorted(folder.glob("*.html"))


def _run(words: Sequence[str]) -> None:
    if bermo(list(words)) != 0:
        raise SystemExit(f"bermo {' '.join(words)} failed")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a model at a free port; give the address of its page."""
    words = [sys.executable, "-m", "bermo", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = ""
        for said in server.stdout:
            if said.startswith("Serving "):
                break
        address = next((word for word in said.split() if word.startswith("http://")), None)
        if address is None:
            raise SystemExit(f"bermo serve failed: {said}")
        try:
            yield address
        finally:
            server.terminate()


def show(browser: Browser, page: Path | str, width: int, scheme: str = SCHEMES[0]) -> None:
    """Open a page, and all that is folded or hidden on it."""
    browser.open(page, width=width, scheme=scheme)
    browser.value(OPEN_ALL if isinstance(page, Path) else ASK_THE_SERVER)


def violations(browser: Browser, page: Path | str, axe: str, width: int, scheme: str) -> list[list[str]]:
    """Return what axe finds: the rule, its sentence, and the first element that breaks it."""
    show(browser, page, width, scheme)
    browser.value(f"{axe};0")
    found: list[list[str]] = json.loads(browser.value(ASK))
    return found


def out_of_reach(browser: Browser, page: Path | str, width: int) -> list[list[str]]:
    """Return the controls that the Tab key does not come to, or shows no focus on."""
    show(browser, page, width)
    count = browser.value(f"window.wanted = {CONTROLS}; window.reached = new Set(); window.wanted.length")
    unseen: list[list[str]] = []
    for _ in range(count + 1):
        browser.press("Tab", TAB)
        browser.value("window.reached.add(document.activeElement); 0")
        if browser.value("window.wanted.includes(document.activeElement)") and not browser.value(IS_SEEN):
            unseen.append(["focus", "no focus is seen", browser.value(f"{NAMED}(document.activeElement)")])
    missed = browser.value(f"window.wanted.filter(e => !window.reached.has(e)).map({NAMED})")
    return unseen + [["keyboard", "Tab does not reach it", name] for name in missed]


def too_wide(browser: Browser, width: int) -> list[list[str]]:
    """Return that the open page scrolls sideways, if it does."""
    found = browser.value("document.documentElement.scrollWidth")
    return [["width", "the page is wider than the screen", f"{found} pixels"]] if found > width else []


def take_picture(browser: Browser, path: Path) -> None:
    """Write the whole page as a PNG, as wide as it was laid out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    taken = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    path.write_bytes(base64.b64decode(taken))


def check(browser: Browser, page: Path | str, axe: str, pictures: Path | None) -> int:
    """Print what is wrong with a page; return how much it is."""
    count = 0
    # A scroll bar that is hidden later leaves a picture narrower than its page.
    browser.call("Emulation.setScrollbarsHidden", hidden=pictures is not None)
    name = page.stem if isinstance(page, Path) else "server"
    for width in WIDTHS:
        for scheme in SCHEMES:
            found = violations(browser, page, axe, width, scheme) + too_wide(browser, width)
            if pictures is not None:
                take_picture(browser, pictures / f"{name}-{width}-{scheme}.png")
            if scheme == SCHEMES[0]:
                found += out_of_reach(browser, page, width)
            count += len(found)
            for rule, help_text, element in found:
                print(f"{name} {width} {scheme}: {rule}: {help_text}\n    {element[:200]}")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="*")
    parser.add_argument("--axe", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    if CHROMIUM is None:
        print("There is no Chromium on the PATH, so nothing was checked.")
        return 0
    axe = given.axe.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        pages: list[Path | str] = [page.resolve() for page in given.pages or make_pages(Path(folder))]
        with contextlib.ExitStack() as opened:
            if not given.pages:
                pages.append(opened.enter_context(serving(Path(folder) / "dense")))
            browser = opened.enter_context(Browser(Path(profile), SECONDS))
            count = sum(check(browser, page, axe, given.pictures) for page in pages)
    print(f"{number_of(count, 'violation')} on {number_of(len(pages), 'page')}")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
