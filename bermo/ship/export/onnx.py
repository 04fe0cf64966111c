"""A torch model -> an ONNX graph with free batch and length, the mix in its streaming form.

torch.export traces the model with its hooks, so the graph holds the running sums of the mix and no stack of
layers. Where a head reads one token, the top layer is computed for that token alone (top.py). From opset 23
on, attention and GELU are one node each, which onnxruntime runs faster.
"""

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.families import family_of
from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.models.top import can_cut_top
from bermo.ship.export.rules import rules_where_they_may_apply
from bermo.ship.export.top import ReadAnswers
from bermo.ship.runtimes.candidate import TOKENS
from bermo.ship.runtimes.torch_candidate import logits_of


class Answers(nn.Module):
    """A model whose inputs are named tensors and whose outputs are tensors: by default its logits alone."""

    def __init__(
        self, model: PreTrainedModel, answer: Callable[..., tuple[Tensor, ...]] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.answer = answer or logits_alone

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.answer(self.model, input_ids=input_ids, attention_mask=attention_mask, **segments)


def logits_alone(model: PreTrainedModel, **inputs: Tensor) -> tuple[Tensor, ...]:
    """Return a model's logits."""
    return logits_of(model(**inputs))


def tokens_and_vector(model: BermoForSentenceEmbedding, **inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors of all tokens beside that of the text."""
    tokens = model.bermo(**inputs).last_hidden_state
    return tokens, model.pool(tokens, inputs["attention_mask"])


def write_onnx(
    model: PreTrainedModel, example: Mapping[str, Tensor], path: Path, gives_tokens: bool = False
) -> None:
    """Write a model as ONNX; `example` is a batch of at least two rows, two tokens and different sizes.

    `gives_tokens` adds the vectors of all tokens to the outputs of a sentence encoder.
    """
    check_onnx()
    any_size: Any = torch.export.Dim.DYNAMIC
    # A pair has two texts, whatever the batch.
    fixed = {1} if getattr(model.config, "pairs", "joined") == "apart" else set()
    shapes = {n: dict.fromkeys(set(range(v.ndim)) - fixed, any_size) for n, v in example.items()}
    config = encoder_of(model).config
    outputs = logits_of(model(**example))
    names = ["logits"] if len(outputs) == 1 else ["start_logits", "end_logits"]
    if isinstance(model, BermoForSentenceEmbedding):
        names = [TOKENS, "sentence_embedding"] if gives_tokens else ["sentence_embedding"]
    with torch.no_grad(), quiet():
        try:
            answers: nn.Module = ReadAnswers(model) if can_cut_top(model) else Answers(model)
            if isinstance(model, BermoForSentenceEmbedding) and gives_tokens:
                answers = Answers(model, tokens_and_vector)
            program = torch.export.export(answers, (), dict(example), dynamic_shapes=shapes, strict=False)
            with known_domains(), rules_where_they_may_apply():
                exported = torch.onnx.export(
                    program,
                    kwargs=dict(example),
                    dynamo=True,
                    opset_version=family_of(config).export.opset,
                    output_names=names,
                    verbose=False,
                )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise BermoError(
                f"torch could not write this {config.model_type} model as ONNX: {reason}"
            ) from error
    write_lean(cast(Any, exported), path)


@contextlib.contextmanager
def known_domains() -> Iterator[None]:
    """Let torch list its 500 ONNX functions without their source.

    For each export it asks the domain of every one, which onnxscript finds out by parsing the function; the
    function's opset knows it. Another onnxscript, which has no such class, is left as it is.
    """
    values = sys.modules.get("onnxscript._internal.values")
    functions: Any = getattr(values, "TracedOnnxFunction", None)
    parse = getattr(functions, "function_ir", None)
    if parse is None:
        yield
        return
    functions.function_ir = property(lambda function: function._opset)
    try:
        yield
    finally:
        functions.function_ir = parse


def write_lean(exported: Any, path: Path) -> None:
    """Write a graph without the metadata that names the torch code of each node, half a megabyte of a small
    model.
    """
    for node in exported.model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    exported.model.metadata_props.clear()
    exported.save(str(path))


def check_onnx() -> None:
    """Refuse before any work if a package is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise BermoError(f'ONNX needs {name}. Install the extra: pip install "bermo[onnx]".') from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings and notes of the exporter off the screen."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
