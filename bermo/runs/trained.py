"""The one way to open the folder of a trained model: a run, one of its seeds, a saved model, or an export.

    open_trained(path) -> TrainedFolder     what the folder holds, and that its files are as they were written
      .load_model()                         the torch model, in float32 and eval mode
      .load_tokenizer()  .read_spec()       its tokenizer; the spec of the run that it belongs to

`model_files.py` says by which files a model is found. Every folder that cannot be opened gets one sentence,
which is the same wherever the folder was named.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bermo.data.tasks import Kind
from bermo.encoders import families
from bermo.encoders.backbone import limit_length_, load_tokenizer
from bermo.encoders.failures import loading
from bermo.encoders.sentence import SentenceSettings, is_sentence_folder
from bermo.encoders.trust import (
    ONLY_DATA,
    ONLY_TENSORS,
    check_finite,
    check_loaded,
    check_weights,
    config_of,
)
from bermo.errors import BermoError
from bermo.models.config import BermoConfig, encoder_config
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.sentence import BermoForSentenceEmbedding, settings_of
from bermo.nn.fast.overrides import NoSymbols
from bermo.runs.folder import read_run_spec
from bermo.runs.model_files import (
    EXPORT_FILE,
    TASK_FILE,
    WEIGHT_SUFFIXES,
    Runtime,
    find_model,
    hub_graph,
    read_export,
    run_of,
)
from bermo.runs.task_file import TrainedTask, embedding_task, has_head, read_task
from bermo.spec import RunSpec
from bermo.sums import check_sums

AUTO_CLASSES: Mapping[Kind, Any] = {
    "classification": AutoModelForSequenceClassification,
    "multi-label": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
    "embedding": BermoForSentenceEmbedding,
    "reranker": AutoModelForSequenceClassification,
}


@dataclass(frozen=True, kw_only=True)
class TrainedFolder:
    """A folder with a trained model: its runtime, what it was trained for, and by which run."""

    folder: Path
    """Where the model's files are: for a run, the `model` folder in it."""
    runtime: Runtime
    precision: str
    config: PretrainedConfig
    trained: TrainedTask
    run: Path | None = None
    """The folder of the run, where the run itself or one of its seeds was named."""

    @property
    def has_segments(self) -> bool:
        """Whether the model reads the segment ids of sentence pairs."""
        return families.has_segments(encoder_config(self.config))

    @property
    def is_apart(self) -> bool:
        """Whether the model reads the two texts of a pair each by itself."""
        return getattr(self.config, "pairs", "joined") == "apart"

    @property
    def sentence(self) -> SentenceSettings:
        """How a sentence encoder makes one vector of a text."""
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
        return None if self.run is None else read_run_spec(self.run)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer beside the model."""
        tokenizer = load_tokenizer(self.folder)
        limit_length_(tokenizer, encoder_config(self.config))
        return tokenizer

    def create_model(self) -> PreTrainedModel:
        """Build a model of the same class and shape with random weights."""
        if self.trained.task.kind == "embedding":
            if isinstance(self.config, BermoConfig):
                return BermoForSentenceEmbedding(self.config)
            return BermoForSentenceEmbedding.from_settings(self.config, settings_of(self.folder))
        model: PreTrainedModel = AUTO_CLASSES[self.trained.task.kind].from_config(self.config, **ONLY_DATA)
        return model

    def load_model(self) -> PreTrainedModel:
        """Load the model in float32 and eval mode; an export has none that torch can load."""
        if self.runtime != "torch":
            raise BermoError(
                f"{self.folder} is an export already ({self.runtime}). Give the model that it was made from."
            )
        check_weights(self.folder)
        with loading("weights", self.folder), NoSymbols():
            model, report = AUTO_CLASSES[self.trained.task.kind].from_pretrained(
                self.folder, dtype=torch.float32, output_loading_info=True, **ONLY_TENSORS
            )
        if not isinstance(self.config, BermoConfig):  # a model of ours has checked itself
            check_loaded(self.folder, report["missing_keys"])
            check_finite(self.folder, model)
        return model.eval()

    def load_bermo_model(self) -> BermoPreTrainedModel:
        """Load a model with a layer mix, as bermo trains it; a plain transformers model is refused."""
        if not isinstance(self.config, BermoConfig) and self.trained.task.kind != "embedding":
            raise BermoError(
                f"{self.folder} holds a {self.config.model_type} model, not one that bermo trained. Train it"
                f" first: bermo train --model {self.folder} …"
            )
        model = self.load_model()
        assert isinstance(model, BermoPreTrainedModel)
        return model


def open_trained(path: str | Path) -> TrainedFolder:
    """Open the folder of a run, a seed, a saved model or an export; of its weights only the sum is read."""
    return _open(path, read_task)


def open_sentence_encoder(path: str | Path) -> TrainedFolder:
    """Open any encoder for the vectors of texts: besides a sentence encoder, a bare one, or that under the
    head of a trained model.
    """
    folder = find_model(path).folder
    if is_sentence_folder(folder) or (folder / TASK_FILE).exists():
        opened = open_trained(path)
        if opened.trained.task.kind == "embedding":
            return opened
        if opened.runtime != "torch":
            raise BermoError(
                f"{path} is an export of a model for {opened.trained.task.kind}, whose graph ends in answers"
                " and gives no vectors. Give the model that it was made from."
            )
    return _open(path, lambda folder, _: embedding_task(settings_of(folder)))


def open_any(path: str | Path) -> TrainedFolder:
    """Open a trained model for its answers, and an encoder without a head for the vectors of texts."""
    folder = find_model(path).folder
    is_known = (folder / TASK_FILE).exists() or is_sentence_folder(folder)
    return open_trained(path) if is_known or has_head(config_of(folder)) else open_sentence_encoder(path)


def _open(path: str | Path, task_of: Callable[[Path, PretrainedConfig], TrainedTask]) -> TrainedFolder:
    given, found = Path(path).expanduser(), find_model(path)
    folder = found.folder
    check_sums(folder)
    config = config_of(folder)
    families.family_of(encoder_config(config))
    return TrainedFolder(
        folder=folder,
        runtime=found.runtime,
        precision=str(read_export(folder).get("precision", "fp32")),
        config=config,
        trained=task_of(folder, config),
        run=run_of(given),
    )
