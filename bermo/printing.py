"""Text of users' files on the terminal: what would move its cursor or change its colours is shown instead."""

# Tabs and ends of lines stay as they are; 127 to 159 are controls too, and 155 begins what ESC [ begins.
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Return the text with its control characters as a person writes them: \\x1b[31m is no colour then."""
    return text.translate(CONTROLS)
