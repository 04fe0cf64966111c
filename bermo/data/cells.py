"""A text as the cell of a table that a spreadsheet opens without computing anything.

A text that a spreadsheet would take for a formula gets an apostrophe before it, and so does one that is such
a text after its apostrophes: where apostrophes and then one of the signs begin a cell, the text is the cell
without its first apostrophe.
"""

from bermo.data.corpora import as_number

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that Excel, LibreOffice or Google Sheets computes (OWASP, CSV injection)."""


def as_cell(text: str, is_tsv: bool) -> str:
    """Return the cell of a text; a .tsv file has no quoting, so there tabs and line ends become blanks."""
    if is_tsv:
        text = " ".join(text.splitlines()).replace("\t", " ")
    is_formula = text.lstrip("'").startswith(FORMULA_SIGNS) and as_number(text) is None
    return f"'{text}" if is_formula else text
