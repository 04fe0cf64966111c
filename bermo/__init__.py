"""bermo: mix, fine-tune, prune, probe and ship Transformer encoders. `bermo --help` is the same in a shell.

Fit and predict    Classifier, Regressor, predict
Models             BermoModel, BermoForSequenceClassification, BermoForTokenClassification,
                   BermoForQuestionAnswering, BermoForMultipleChoice, BermoForMaskedLM,
                   BermoForSentenceEmbedding, BermoConfig; box (the encoder of the package), import_elmo
Mixes of layers    LayerMix, OneLayer, ConcatLayers, GateMix, InnerMix
Pruning            prune_, prune_units_, fold_, count, shrink, parameter_groups, PruningCallback,
                   CubicSchedule; Magnitude, Movement, SoftMovement, L0
Whole runs         finetune, pretrain; RunSpec of ModelSpec, MixSpec, DataSpec, TrainSpec, PruneSpec,
                   DistillSpec, MethodSpec; PretrainSpec
Vectors            load_encoder, stream_vectors, text_vectors
Cutting            cut_vocabulary; of an encoder inside another model cut_encoder, give_shape_,
                   replace_encoder_, teach_
Files              load_sparse, export_module
Errors             BermoError

help(bermo.Classifier), or that of any other name, has an example. Importing this package registers the
models with Hugging Face's Auto classes.
"""

import os
import sys
from itertools import pairwise


def _is_command() -> bool:
    """Tell whether this process is the command, as `bermo` or as `python -m bermo`."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119 (pathlib takes long to import)
    # While Python looks for the package of -m, that is all it says of the program.
    is_module = called == "-m" and ("-m", "bermo") in pairwise(sys.orig_argv)
    return is_module or called in ("bermo", "bermo.exe")


# Before anything else is imported: until then Ctrl-C gives Python's traceback.
if _is_command():
    from bermo.interrupts import end_at_once

    end_at_once()

import importlib  # noqa: E402

_PUBLIC = {
    "Classifier": "bermo.estimators.classifier",
    "Regressor": "bermo.estimators.regressor",
    "predict": "bermo.estimators.predict",
    "BermoConfig": "bermo.models.tasks",
    "BermoModel": "bermo.models.tasks",
    "BermoForSequenceClassification": "bermo.models.tasks",
    "BermoForTokenClassification": "bermo.models.tasks",
    "BermoForQuestionAnswering": "bermo.models.tasks",
    "BermoForMultipleChoice": "bermo.models.tasks",
    "BermoForMaskedLM": "bermo.models.tasks",
    "BermoForSentenceEmbedding": "bermo.models.sentence",
    "LayerMix": "bermo.nn.mix",
    "OneLayer": "bermo.nn.mix",
    "ConcatLayers": "bermo.nn.mix",
    "GateMix": "bermo.nn.mix",
    "prune_": "bermo.pruning.weights",
    "fold_": "bermo.pruning.fold",
    "count": "bermo.pruning.fold",
    "Magnitude": "bermo.pruning.criteria",
    "Movement": "bermo.pruning.criteria",
    "SoftMovement": "bermo.pruning.criteria",
    "L0": "bermo.pruning.criteria",
    "CubicSchedule": "bermo.pruning.schedule",
    "PruningCallback": "bermo.pruning.callback",
    "prune_units_": "bermo.pruning.units",
    "parameter_groups": "bermo.training.groups",
    "shrink": "bermo.ship.shrink.delete",
    "cut_vocabulary": "bermo.ship.shrink.plain",
    "cut_encoder": "bermo.ship.shrink.inside",
    "give_shape_": "bermo.ship.shrink.inside",
    "replace_encoder_": "bermo.ship.shrink.inside",
    "teach_": "bermo.ship.shrink.teach",
    "export_module": "bermo.ship.export.module",
    "RunSpec": "bermo.spec",
    "ModelSpec": "bermo.spec",
    "MixSpec": "bermo.spec",
    "DataSpec": "bermo.spec",
    "TrainSpec": "bermo.spec",
    "PruneSpec": "bermo.spec",
    "DistillSpec": "bermo.spec",
    "MethodSpec": "bermo.method_spec",
    "BermoError": "bermo.errors",
    "finetune": "bermo.methods.finetune",
    "pretrain": "bermo.methods.pretraining.run",
    "PretrainSpec": "bermo.pretrain_spec",
    "import_elmo": "bermo.methods.pretraining.released_elmo",
    "InnerMix": "bermo.nn.inner",
    "box": "bermo.encoders.backbone",
    "load_encoder": "bermo.vectors",
    "stream_vectors": "bermo.vectors",
    "text_vectors": "bermo.vectors",
    "load_sparse": "bermo.ship.runtimes.sparse",
}

__all__ = list(_PUBLIC)

# Read when onnxruntime is imported, by us or by nncf: it would keep a number of this machine in the user's
# cache and report to its maker what is run.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bermo' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


# A program that says `import bermo` wants the Auto classes to know our models. The command `bermo` must
# answer --help in an instant; its verbs import what they need themselves.
if not _is_command():
    with importlib.import_module("bermo.encoders.quick_import").quick_imports():
        importlib.import_module("bermo.models.tasks")
