"""What axe-core finds wrong with a page of `bermo report`, at two widths, on light and on dark.

    npm install --prefix /tmp/axe axe-core
    python scripts/check_accessibility.py report.html --axe /tmp/axe/node_modules/axe-core/axe.min.js

Without Chromium on the PATH nothing is checked, and it says so. --pictures writes the page as PNG files.
"""

import argparse
import base64
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.report.browser import CHROMIUM, Browser

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true })"
ASK = "axe.run().then(found => JSON.stringify(found.violations.map(v => [v.id, v.help, v.nodes[0].html])))"


def violations(browser: Browser, page: Path, axe: str, width: int, scheme: str) -> list[list[str]]:
    """Return what axe finds: the rule, its sentence, and the first element that breaks it."""
    browser.open(page, width=width, scheme=scheme)
    browser.value(OPEN_ALL)
    browser.value(f"{axe};0")
    found: list[list[str]] = json.loads(browser.value(ASK))
    return found


def take_picture(browser: Browser, path: Path) -> None:
    """Write the whole page as a PNG."""
    taken = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    path.write_bytes(base64.b64decode(taken))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--axe", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    if CHROMIUM is None:
        print("There is no Chromium on the PATH, so nothing was checked.")
        return 0
    count = 0
    axe = given.axe.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        for width in WIDTHS:
            for scheme in SCHEMES:
                found = violations(browser, given.page.resolve(), axe, width, scheme)
                count += len(found)
                for rule, help_text, element in found:
                    print(f"{width} {scheme}: {rule}: {help_text}\n    {element[:200]}")
                if given.pictures is not None:
                    take_picture(browser, given.pictures / f"page-{width}-{scheme}.png")
    print(f"{count} violations")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
