"""Text on the terminal: wrapped to its width, and what would move its cursor or change its colours shown."""

import shutil
import sys
import textwrap
from typing import TextIO

# Tabs and ends of lines stay as they are; 127 to 159 are controls too, and 155 begins what ESC [ begins.
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Return the text with its control characters as a person writes them: \\x1b[31m is no colour then."""
    return text.translate(CONTROLS)


def wrapped(text: str, first: str = "", rest: str | None = None) -> str:
    """Return a text in lines that fit the terminal, 80 columns where there is none.

    The first line starts with `first`, the others with `rest` or with as many spaces. A path is never cut.
    """
    return textwrap.fill(
        text,
        shutil.get_terminal_size().columns,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def number_of(count: int, thing: str) -> str:
    """Return "1 row", "2 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share as "12.3 %": the sign stands apart from the number."""
    return f"{100 * share:.{digits}f} %"


def say(text: str, file: TextIO | None = None) -> None:
    """Print a text that holds names or labels of a user; `file` is sys.stdout unless another is given."""
    print(visible(text), file=file or sys.stdout, flush=file is not None)
