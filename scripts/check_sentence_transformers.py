"""Stock sentence-transformers loads what bermo writes and gives the same vectors, to 1e-5.

    python scripts/check_sentence_transformers.py [FOLDER …]

sentence-transformers is installed from PyPI into an environment of its own, which sees the torch and the
transformers of this one; nothing is installed here. Without folders, the small encoder in the package is
written as a sentence encoder in every form: each pooling, with and without normalising, a prompt, a
Matryoshka dimension. The exit code is 1 where a vector differs.
"""

import json
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bermo.encoders.backbone import load_tokenizer
from bermo.encoders.sentence import SentenceSettings
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.ship.runtimes.embed import SentenceEncoder

TOLERANCE = 1e-5
TEXTS = (
    "The cat sleeps.",
    "A man is riding a horse through the woods, although it rains.",
    "",
    "Where is the nearest station? " * 40,
)
FORMS: Mapping[str, SentenceSettings] = {
    "mean": SentenceSettings(),
    "first": SentenceSettings(pooling="first", max_length=32),
    "last, not normalised": SentenceSettings(pooling="last", normalise=False),
    "prompt": SentenceSettings(prompts={"query": "search: "}, default_prompt="query"),
    "dimension": SentenceSettings(dimension=64),
}
STOCK = """
import json, sys, numpy
from sentence_transformers import SentenceTransformer, __version__
folder, dimension, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
model = SentenceTransformer(folder, device="cpu", truncate_dim=dimension)
texts = json.load(sys.stdin)
numpy.save(out, model.encode(texts, normalize_embeddings=dimension is not None))
print(__version__)
"""


def make_environment(folder: Path) -> Path:
    """Return the Python of an environment with sentence-transformers, and this one's packages behind it."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "sentence-transformers"]
    subprocess.run(command, check=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    (Path(place) / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def write_forms(root: Path) -> list[Path]:
    """Write the encoder of the package as a sentence encoder in every form."""
    for name, settings in FORMS.items():
        BermoForSentenceEmbedding.from_settings("box", settings).save_pretrained(root / name)
        load_tokenizer("box").save_pretrained(root / name)
    return [root / name for name in FORMS]


def largest_gap(python: Path, folder: Path, texts: Sequence[str], aside: Path) -> tuple[float, str]:
    """Return the largest difference of a unit of a vector, and the version that was asked."""
    encoder = SentenceEncoder(folder)
    ours = encoder.encode(texts, encoder.prompt())
    out = aside / "stock.npy"
    command = [python, "-c", STOCK, folder, json.dumps(encoder.settings.dimension), out]
    done = subprocess.run(command, input=json.dumps(texts), check=True, capture_output=True, text=True)
    return float(np.abs(np.load(out) - ours).max()), done.stdout.strip()


def main() -> int:
    with tempfile.TemporaryDirectory() as aside:
        python = make_environment(Path(aside) / "environment")
        folders = [Path(name) for name in sys.argv[1:]] or write_forms(Path(aside))
        is_fine = True
        for folder in folders:
            gap, version = largest_gap(python, folder, TEXTS, Path(aside))
            is_fine &= gap <= TOLERANCE
            print(f"{folder.name}: {gap:.1e} from sentence-transformers {version}", flush=True)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
