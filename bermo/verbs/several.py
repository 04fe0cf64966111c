"""Several models in one command: their names parted by commas, a folder for each by its name."""

from pathlib import Path

from bermo.errors import BermoError


def models_of(given: str) -> dict[str, str]:
    """Return each model that a comma parts, by the name of its folder; a path with a comma is one model."""
    if "," not in given or Path(given).expanduser().exists():
        return {Path(given).name: given}
    models: dict[str, str] = {}
    for model in given.split(","):
        name = Path(model).name
        if not name:
            raise BermoError(
                f'--model got "{given}", of which one name is empty. Give names parted by commas, without a'
                " comma at the ends."
            )
        if name in models:
            raise BermoError(
                f'--model names two models "{name}", which would share a folder. Give each once, or probe'
                " them one by one, each with its --out."
            )
        models[name] = model
    return models
