"""The terminal of the tables and sentences: names and labels of users are printed as they are."""

from typing import Any

from rich.console import Console
from rich.text import Text

from bermo.printing import visible


class PlainConsole(Console):
    """Prints texts, also those in the cells of tables, letter by letter: [/b] and :smile: mean nothing, and
    controls of the terminal are shown.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string; rich does so with all that is printed and is no text yet."""
        return super().render_str(visible(text), **options)
