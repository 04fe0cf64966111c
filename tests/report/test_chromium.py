"""The page in a real browser: it loads without errors, sorts, copies, fits a phone, has a dark mode."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.data.mistakes import Mistake
from bermo.figures.data import Figure, Findings, Lines, Points, Section, Table, write_findings
from bermo.report.frozen_probes import frozen_table
from bermo.report.mistakes import mistakes_figure
from bermo.report.page import to_page, write_page
from bermo.report.word_probes import word_table
from bermo.ship.serve import app
from tests.report.browser import CHROMIUM, Browser
from tests.report.some import findings

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH")
SERVED = Path(app.__file__).with_name("page.html")
LOSSES = "[...document.querySelectorAll('figure.table table')].at(-1)"
COLUMN = f"[...{LOSSES}.tBodies[0].rows].map(row => row.cells[1].textContent.trim())"
HEADER = f"{LOSSES}.tHead.rows[0].cells[1]"


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_findings(folder / "look" / "figures.json", findings())
    write_page([runs, folder / "look"], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_loads_from_the_disk_without_a_complaint_and_asks_for_nothing_else(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    assert browser.value("document.querySelectorAll('figure').length") > 10
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]


def test_every_figure_has_size_and_a_name(browser: Browser, page: Path) -> None:
    browser.open(page)
    drawn = browser.value(
        "[...document.querySelectorAll('svg')].map(svg => { const box = svg.getBoundingClientRect();"
        " return [box.width, box.height, svg.getAttribute('aria-label').length] })"
    )
    assert len(drawn) > 8
    for width, height, label_length in drawn:
        assert width > 300
        assert height > 100
        assert label_length > 40


def test_no_text_of_a_drawing_is_cut_off(browser: Browser, page: Path) -> None:
    browser.open(page)
    outside = browser.value(
        "[...document.querySelectorAll('svg text')].filter(text => {"
        " const box = text.getBoundingClientRect(),"
        " room = text.ownerSVGElement.getBoundingClientRect(); return box.left < room.left - 1 ||"
        " box.right > room.right + 1 || box.top < room.top - 2 || box.bottom > room.bottom + 2 })"
        ".map(text => text.textContent)"
    )
    assert outside == []


def test_a_click_sorts_by_value_then_the_other_way_with_what_is_missing_last(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    assert browser.value(COLUMN) == ["10", "", "9", "1.5"]
    browser.value(f"{HEADER}.querySelector('button').click()")
    assert browser.value(COLUMN) == ["1.5", "9", "10", ""]
    assert browser.value(f"{HEADER}.getAttribute('aria-sort')") == "ascending"
    browser.value(f"{HEADER}.querySelector('button').click()")
    assert browser.value(COLUMN) == ["10", "9", "1.5", ""]
    assert browser.value(f"{HEADER}.getAttribute('aria-sort')") == "descending"
    assert browser.value(f"{LOSSES}.querySelectorAll('[aria-sort]').length") == 1


def test_the_keyboard_sorts_too(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value(f"{HEADER}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.value(COLUMN) == ["1.5", "9", "10", ""]


@pytest.mark.parametrize(("key", "code"), [("Enter", 13), (" ", 32)], ids=["Enter", "Space"])
def test_both_keys_of_a_control_fold_sort_hide_and_copy(
    browser: Browser, page: Path, key: str, code: int
) -> None:
    browser.open(page)
    told = {
        ".part > summary": "String(document.activeElement.parentElement.open)",
        "figure .numbers > summary": "String(document.activeElement.parentElement.open)",
        "figure.table th button": "String(document.activeElement.parentElement.getAttribute('aria-sort'))",
        ".toggle": "document.activeElement.getAttribute('aria-pressed')",
        "figure.table .copy": "document.activeElement.textContent",
    }
    for control, state in told.items():
        # The last one: the first fold must not hide the others.
        browser.value(f"[...document.querySelectorAll('{control}')].at(-1).focus()")
        before = browser.value(state)
        browser.press(key, code)
        after = browser.value(f"new Promise(done => setTimeout(() => done({state}), 50))")
        assert after != before, control
        if "part" in control:
            browser.press(key, code)


def test_the_copy_button_gives_the_table_as_tabs_and_lines(browser: Browser, page: Path) -> None:
    browser.open(page)
    # What is written is read back from the page: headless, the system's clipboard is not ours to read.
    browser.value(
        "navigator.clipboard ? (navigator.clipboard.writeText = async text => { window.copied = text }) : 0;"
        "addEventListener('copy', () => { window.copied = document.activeElement.value })"
    )
    browser.value(f"{LOSSES}.closest('figure').querySelector('.copy').click()")
    expected = "text\tloss\n<b>&\"'</b>\t10\nb\t\nc\t9\nd\t1.5"
    assert browser.value("new Promise(done => setTimeout(() => done(window.copied), 50))") == expected
    assert browser.value(f"{LOSSES}.closest('figure').querySelector('.copy').textContent") == "Copied"


def test_without_a_clipboard_the_copy_button_takes_the_old_way(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        "document.execCommand = () => { window.copied = document.activeElement.value; return true }"
    )
    browser.value(f"{LOSSES}.closest('figure').querySelector('.copy').click()")
    copied = browser.value("new Promise(done => setTimeout(() => done(window.copied), 50))")
    assert copied.startswith("text\tloss\n")


def test_on_a_phone_nothing_is_wider_than_the_screen_and_sections_open_by_their_link(
    browser: Browser, page: Path
) -> None:
    browser.open(page, width=390)
    assert browser.value("document.documentElement.scrollWidth") <= 390
    opened = "[...document.querySelectorAll('.part')].map(part => part.open)"
    states = browser.value(opened)
    assert states[0] is True
    assert not any(states[1:])
    browser.value("document.querySelectorAll('nav ul ul a')[1].click()")
    assert browser.value(f"new Promise(done => setTimeout(() => done({opened}), 100))")[1] is True
    smallest = browser.value(
        "document.querySelectorAll('.part').forEach(part => { part.open = true });"
        "Math.min(...[...document.querySelectorAll('figure:not(.wide) svg')].map(svg =>"
        " svg.getBoundingClientRect().width / svg.viewBox.baseVal.width * 11))"
    )
    # Pixels of the smallest letters.
    assert smallest >= 7.5
    assert browser.value("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("table", "score"), [(word_table([]), "its test"), (frozen_table([]), "its test")], ids=["words", "texts"]
)
def test_the_score_of_a_probe_is_on_a_phone_s_screen(
    browser: Browser, tmp_path: Path, table: Table, score: str
) -> None:
    row = tuple(
        "relations" if name == "group" else "upos" if name == "task" else 91.16 for name in table.columns
    )
    section = Section(title="All", text="", figures=(replace(table, rows=(row,)),))
    findings = Findings(title="Probes", facts={"model": "box"}, sections=(section,))
    (tmp_path / "page.html").write_text(to_page([findings], "Probes"))
    browser.open(tmp_path / "page.html", width=390)
    ends = browser.value(
        "Object.fromEntries([...document.querySelectorAll('th')].map(cell =>"
        " [cell.textContent.trim(), cell.getBoundingClientRect().right]))"
    )
    assert ends[score] <= 375


def test_a_long_text_beside_many_columns_keeps_its_row_low(browser: Browser, tmp_path: Path) -> None:
    columns = ("group", "task", "train", "dev", "test", "what was read")
    table = Table(
        title="Rows",
        columns=columns,
        rows=(("tags", "upos", 6599, 1287, 4683, "200 sentences from the grammar, all of them"),),
    )
    findings = Findings(title="F", facts={}, sections=(Section(title="S", text="", figures=(table,)),))
    (tmp_path / "page.html").write_text(to_page([findings], "F"))
    browser.open(tmp_path / "page.html", width=390)
    assert browser.value("document.querySelector('tbody tr').getBoundingClientRect().height") < 80


def shown(browser: Browser, folder: Path, *figures: Figure, width: int = 390) -> None:
    """Open a page of these figures, on a phone unless told otherwise."""
    findings = Findings(title="F", facts={}, sections=(Section(title="S", text="", figures=figures),))
    (folder / "page.html").write_text(to_page([findings], "F"), encoding="utf-8")
    browser.open(folder / "page.html", width=width)


def test_columns_beyond_the_edge_are_hinted_at_by_a_shadow_until_they_are_seen(
    browser: Browser, tmp_path: Path
) -> None:
    table = Table(title="T", columns=tuple(f"column {k}" for k in range(12)), rows=((1.5,) * 12,))
    shown(browser, tmp_path, table)
    frame = "await new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))"
    shadow = "getComputedStyle(part).boxShadow !== 'none'"
    asked = (
        f"(async () => {{ const part = document.querySelector('.scroll'); {frame}; const before = {shadow};"
        f" part.scrollLeft = 9999; {frame}; return [before, {shadow}] }})()"
    )
    assert browser.value(asked) == [True, False]
    shown(browser, tmp_path, table, width=1800)
    assert browser.value(asked) == [False, False]


def test_both_texts_of_a_pair_are_on_a_phone_s_screen(browser: Browser, tmp_path: Path) -> None:
    pair = ("agreement", "My librarians behind a lonely tailor whisper.", "My librarians behind it whispers.")
    shown(browser, tmp_path, Table(title="T", columns=("what differs", "right", "wrong"), rows=(pair,)))
    assert browser.value("document.querySelector('tbody td:last-child').getBoundingClientRect().right") <= 385


def test_a_percent_stays_on_one_line_and_is_copied_with_a_space(browser: Browser, tmp_path: Path) -> None:
    rows = (tuple(f"{word} 51 %" for word in ("previous", "last", "next", "same", "first", "last")),)
    shown(browser, tmp_path, Table(title="T", columns=tuple("abcdef"), rows=rows))
    assert "51\xa0%" in browser.value("document.querySelector('td').textContent")
    browser.value("navigator.clipboard.writeText = async words => { window.copied = words }")
    browser.value("document.querySelector('.copy').click()")
    assert browser.value("window.copied").splitlines()[1].startswith("previous 51 %\tlast 51 %")


def test_the_first_point_does_not_cover_the_upright_axis_numbers(browser: Browser, tmp_path: Path) -> None:
    for is_log in (True, False):
        points = Points(
            title="P", x_label="times", y_label="%", x=(1.0, 40.0), y=(100.0, 90.0), names=("a", "b"),
            groups=("", ""), is_log=is_log,
        )  # fmt: skip
        shown(browser, tmp_path, points)
        ends, begins = browser.value(
            "[Math.max(...[...document.querySelectorAll('.tick.end')]"
            ".map(t => t.getBoundingClientRect().right)),"
            " Math.min(...[...document.querySelectorAll('svg path')].filter(p => p.querySelector('title'))"
            ".map(p => p.getBoundingClientRect().left))]"
        )
        assert begins > ends + 4


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_page_follows_light_and_dark(browser: Browser, page: Path, scheme: str, is_dark: bool) -> None:
    browser.open(page, scheme=scheme)
    paper, ink = browser.value(
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('svg text')).fill]"
        ".map(colour => colour.match(/\\d+/g).map(Number).reduce((a, b) => a + b))"
    )
    assert (paper < ink) is is_dark


CURVES = "[...document.querySelectorAll('figure')].find(figure => figure.textContent.startsWith('Curves'))"
GRID = "[...document.querySelectorAll('figure')].find(figure => figure.textContent.startsWith('Grid'))"


def point_at(browser: Browser, figure: str, across: float, down: float) -> str:
    """Put the pointer at a share of a figure's plot, and return what is told below it."""
    said: str = browser.value(
        f"(() => {{ const figure = {figure}, svg = figure.querySelector('svg');"
        " const [, left, top, width, height] = svg.dataset.plot.split(' ').map(Number);"
        " const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;"
        " const scale = box.width / view.width;"
        f" const clientX = box.left + (left + {across} * width - view.x) * scale;"
        f" const clientY = box.top + (top + {down} * height - view.y) * scale;"
        " svg.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY, bubbles: true}));"
        " return figure.querySelector('.values').textContent })()"
    )
    return said


def test_the_pointer_shows_the_values_of_a_curve_and_of_a_cell(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert point_at(browser, CURVES, 0.26, 0.5).startswith("layer 1: a 2; a, low 1; a, high 3; <b>")
    assert point_at(browser, GRID, 0.5, 0.2) == "layer 1, 2: 0.9"
    assert point_at(browser, GRID, 0.1, 0.9) == "layer 2, 1: -0.4"
    # Sorting the table does not move what the drawing shows.
    browser.value(
        f"{GRID}.querySelectorAll('th button')[1].click(); {GRID}.querySelectorAll('th button')[1].click()"
    )
    assert point_at(browser, GRID, 0.1, 0.9) == "layer 2, 1: -0.4"
    assert browser.complaints() == []


def test_arrow_keys_walk_over_the_values(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.value(f"{GRID}.querySelector('.drawing').focus()")
    told = f"{GRID}.querySelector('.values').textContent"
    browser.press("ArrowRight", 39)
    assert browser.value(told) == "layer 1, 1: 0.1"
    browser.press("ArrowRight", 39)
    assert browser.value(told) == "layer 1, 2: 0.9"
    browser.press("ArrowDown", 40)
    assert browser.value(told) == "layer 2, 2: 0"


def test_a_button_hides_a_series_and_shows_it_again(browser: Browser, page: Path) -> None:
    browser.open(page)
    button = f"{CURVES}.querySelector('.toggle')"
    shown = (
        f"[...{CURVES}.querySelectorAll('g[data-series]')].map(g => getComputedStyle(g).display !== 'none')"
    )
    assert all(browser.value(shown))
    browser.value(f"{button}.focus()")
    browser.press("Enter", 13)
    assert browser.value(f"{button}.getAttribute('aria-pressed')") == "false"
    assert not all(browser.value(shown))
    assert any(browser.value(shown))
    assert "a 2" not in point_at(browser, CURVES, 0.26, 0.5)
    browser.value(f"{button}.click()")
    assert all(browser.value(shown))


def test_buttons_stand_in_the_order_of_the_legend(browser: Browser, tmp_path: Path) -> None:
    lines = Lines(
        title="Curves",
        x_label="layer",
        y_label="score",
        x=(0.0, 1.0),
        series={"a": (1.0, 2.0), "b": (2.0, 3.0), "c": (3.0, 4.0)},
        bands={"c": ((2.5, 3.5), (3.5, 4.5))},
    )
    findings = Findings(title="F", facts={}, sections=(Section(title="S", text="", figures=(lines,)),))
    (tmp_path / "page.html").write_text(to_page([findings], "F"))
    browser.open(tmp_path / "page.html")
    names = browser.value("[...document.querySelectorAll('.toggle')].map(button => button.textContent)")
    assert names == ["a", "b", "c"]


def test_a_mistake_s_text_begins_on_a_phone_s_screen(browser: Browser, tmp_path: Path) -> None:
    mistake = Mistake(
        row=283, label="entity", given="abbreviation", probability=0.898, text=("What does it stand for?",)
    )
    table = mistakes_figure("The surest mistakes", [mistake], "")
    findings = Findings(title="F", facts={}, sections=(Section(title="S", text="", figures=(table,)),))
    (tmp_path / "page.html").write_text(to_page([findings], "F"))
    browser.open(tmp_path / "page.html", width=390)
    left = browser.value(
        "[...document.querySelectorAll('th')].find(cell => cell.textContent.trim() === 'text')"
        ".getBoundingClientRect().left"
    )
    # Two thirds of the screen; fonts differ by some pixels.
    assert left <= 260


def test_a_finding_stands_apart_from_the_one_before_it(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(to_page([findings(), findings()], "Two"))
    for width in (1280, 390):
        browser.open(tmp_path / "page.html", width=width)
        gap = browser.value(
            "document.querySelectorAll('h2')[1].getBoundingClientRect().top"
            " - document.querySelector('section').getBoundingClientRect().bottom"
        )
        assert gap >= 20, width


def test_a_short_name_is_not_broken_at_its_hyphen_on_a_desk(browser: Browser, tmp_path: Path) -> None:
    columns = ("run", *(f"a measure {number}" for number in range(12)))
    table = Table(title="Runs", columns=columns, rows=(("mlm-1-cola", *range(12)),))
    found = Findings(title="F", facts={}, sections=(Section(title="S", text="", figures=(table,)),))
    (tmp_path / "page.html").write_text(to_page([found], "F"))
    browser.open(tmp_path / "page.html", width=1280)
    assert browser.value("document.querySelector('tbody tr').getBoundingClientRect().height") < 40


def test_the_page_of_a_server_shows_the_focus_and_has_one_main_part(browser: Browser) -> None:
    browser.open(SERVED)
    assert browser.value("document.querySelectorAll('main').length") == 1
    assert browser.value("document.querySelector('main').contains(document.querySelector('h1'))")
    for _ in range(3):
        browser.press("Tab", 9)
        style = "getComputedStyle(document.activeElement)"
        assert browser.value(f"{style}.outlineStyle !== 'none' && parseFloat({style}.outlineWidth) >= 2")
