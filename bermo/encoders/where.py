"""What the name of an encoder means: a folder, box, or a name on the hub. No torch is imported."""

from pathlib import Path

from bermo.errors import BermoError

BOX = Path(__file__).parents[1] / "box"
"""The encoder in the package."""


def resolve(name: str | Path) -> str:
    """Return the folder that `name` means, or the name itself if it can only be one on the hub."""
    text = str(name)
    path = BOX if text == "box" else Path(text).expanduser()
    if text and path.is_dir():
        return str(path)
    is_path = isinstance(name, Path) or text.startswith((".", "/", "~")) or "\\" in text or path.is_absolute()
    if path.is_file():
        raise BermoError(f'"{text}" is a file. Pass the folder that holds config.json.')
    if is_path or text == "box" or text.count("/") > 1 or text.endswith("/") or not text:
        raise BermoError(f'There is no folder "{text}". Pass a folder, a model on the hub, or box.')
    # This asks the hub's library, which is not needed for a folder.
    from bermo.encoders.hub import check_hub

    check_hub(text)
    return text
