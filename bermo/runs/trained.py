"""The one way to open the folder of a trained model: a run, one of its seeds, a saved model, or an export.

    open_trained(path) -> TrainedFolder     what the folder holds, and that its files are as they were written
      .load_model()                         the torch model, in float32 and eval mode
      .load_tokenizer()  .read_spec()       its tokenizer; the spec of the run that it belongs to

An export is opened by what its record says (`reading.py`), so that neither torch nor transformers is
imported; whatever needs them is in `loading.py`. `model_files.py` says by which files a model is found. Every
folder that cannot be opened gets one sentence, which is the same wherever the folder was named.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bermo.encoders.plain_tokenizer import AnyTokenizer
from bermo.encoders.sentence import is_sentence_folder
from bermo.errors import BermoError
from bermo.runs.model_files import (
    EXPORT_FILE,
    TASK_FILE,
    WEIGHT_SUFFIXES,
    FoundModel,
    Runtime,
    find_model,
    hub_graph,
    read_export,
    run_of,
)
from bermo.runs.reading import Reading, recorded_reading
from bermo.runs.task_file import TrainedTask, read_task_file
from bermo.spec import RunSpec
from bermo.sums import check_sums

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from bermo.encoders.sentence import SentenceSettings
    from bermo.models.encoder import BermoPreTrainedModel


@dataclass(frozen=True, kw_only=True)
class TrainedFolder:
    """A folder with a trained model: its runtime, what it was trained for, and by which run."""

    folder: Path
    """Where the model's files are: for a run, the `model` folder in it."""
    runtime: Runtime
    precision: str
    trained: TrainedTask
    run: Path | None = None
    """The folder of the run, where the run itself or one of its seeds was named."""
    reading: Reading | None = None
    """How the model reads texts, where an export's record tells it; else the config and tokenizer do."""
    given_config: "PretrainedConfig | None" = None
    """The config, where the folder was opened by it."""

    @cached_property
    def config(self) -> "PretrainedConfig":
        """The model's config."""
        from bermo.runs.loading import read_config

        return read_config(self.folder) if self.given_config is None else self.given_config

    @property
    def has_segments(self) -> bool:
        """Whether the model reads the segment ids of sentence pairs."""
        if self.reading is not None:
            return self.reading.has_segments
        from bermo.runs.loading import has_segments

        return has_segments(self.config)

    @property
    def is_apart(self) -> bool:
        """Whether the model reads the two texts of a pair each by itself."""
        if self.reading is not None:
            return self.reading.is_apart
        return getattr(self.config, "pairs", "joined") == "apart"

    @property
    def num_words(self) -> int:
        """How many tokens the model has embeddings for."""
        return int(self.config.vocab_size) if self.reading is None else self.reading.num_words

    @property
    def sentence(self) -> "SentenceSettings":
        """How a sentence encoder makes one vector of a text."""
        from bermo.models.sentence import settings_of

        return settings_of(self.folder, self.config)

    @property
    def num_bytes(self) -> int:
        """The size of the model's own files; tokenizer, configs and cards do not count."""
        graph = hub_graph(self.folder)
        if graph is not None:
            return graph.stat().st_size
        files = (path for path in self.folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
        return sum(path.stat().st_size for path in files)

    @property
    def is_export(self) -> bool:
        """Whether `bermo export` wrote the folder."""
        return (self.folder / EXPORT_FILE).is_file()

    def read_spec(self) -> RunSpec | None:
        """Return the spec of the run, or None where no run was named."""
        from bermo.runs.folder import read_run_spec

        return None if self.run is None else read_run_spec(self.run)

    def load_tokenizer(self) -> "PreTrainedTokenizerBase":
        """Load the tokenizer beside the model, as one of transformers."""
        from bermo.runs.loading import load_tokenizer

        return load_tokenizer(self.folder, self.config)

    def load_reader(self) -> AnyTokenizer:
        """Load the tokenizer for what only reads rows: without transformers where the record says how."""
        return self.load_tokenizer() if self.reading is None else self.reading.load_tokenizer(self.folder)

    def create_model(self) -> "PreTrainedModel":
        """Build a model of the same class and shape with random weights."""
        from bermo.runs.loading import create_model

        return create_model(self.folder, self.config, self.trained.task.kind)

    def load_model(self) -> "PreTrainedModel":
        """Load the model in float32 and eval mode; an export has none that torch can load."""
        if self.runtime != "torch":
            raise BermoError(
                f"{self.folder} is an export already ({self.runtime}). Give the model that it was made from."
            )
        from bermo.runs.loading import load_model

        return load_model(self.folder, self.config, self.trained.task.kind)

    def load_bermo_model(self) -> "BermoPreTrainedModel":
        """Load a model with a layer mix, as bermo trains it; a plain transformers model is refused."""
        from bermo.runs.loading import check_is_bermo

        check_is_bermo(self.folder, self.config, self.trained.task.kind)
        return cast("BermoPreTrainedModel", self.load_model())


def open_trained(path: str | Path) -> TrainedFolder:
    """Open the folder of a run, a seed, a saved model or an export; of its weights only the sum is read."""
    found = find_model(path)
    check_sums(found.folder)
    reading = recorded_reading(found)
    if reading is None:
        from bermo.runs.head_task import read_task

        return _open(path, found, read_task)
    trained = read_task_file(found.folder, reading.num_labels)
    return _opened(path, found, trained, reading=reading)


def open_sentence_encoder(path: str | Path) -> TrainedFolder:
    """Open any encoder for the vectors of texts: besides a sentence encoder, a bare one, or that under the
    head of a trained model.
    """
    from bermo.models.sentence import settings_of
    from bermo.runs.head_task import embedding_task

    found = find_model(path)
    if is_sentence_folder(found.folder) or (found.folder / TASK_FILE).exists():
        opened = open_trained(path)
        if opened.trained.task.kind == "embedding":
            return opened
        if opened.runtime != "torch":
            raise BermoError(
                f"{path} is an export of a model for {opened.trained.task.kind}, whose graph ends in answers"
                " and gives no vectors. Give the model that it was made from."
            )
    check_sums(found.folder)
    return _open(path, found, lambda folder, _: embedding_task(settings_of(folder)))


def open_any(path: str | Path) -> TrainedFolder:
    """Open a trained model for its answers, and an encoder without a head for the vectors of texts."""
    folder = find_model(path).folder
    if (folder / TASK_FILE).exists() or is_sentence_folder(folder):
        return open_trained(path)
    from bermo.runs.head_task import has_head
    from bermo.runs.loading import read_config

    return open_trained(path) if has_head(read_config(folder)) else open_sentence_encoder(path)


def _open(
    path: str | Path, found: FoundModel, task_of: "Callable[[Path, PretrainedConfig], TrainedTask]"
) -> TrainedFolder:
    """Open a folder by its config."""
    from bermo.runs.loading import read_config

    config = read_config(found.folder)
    return _opened(path, found, task_of(found.folder, config), config=config)


def _opened(
    path: str | Path,
    found: FoundModel,
    trained: TrainedTask,
    reading: Reading | None = None,
    config: "PretrainedConfig | None" = None,
) -> TrainedFolder:
    return TrainedFolder(
        folder=found.folder,
        runtime=found.runtime,
        precision=str(read_export(found.folder).get("precision", "fp32")),
        trained=trained,
        run=run_of(Path(path).expanduser()),
        reading=reading,
        given_config=config,
    )
