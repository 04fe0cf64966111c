"""A pretraining described: the model card beside the weights, and curves as figures."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from bermo.encoders.card import Evaluated, with_header
from bermo.fields import leaves
from bermo.figures.data import Figure, Findings, Heat, Lines, Section
from bermo.pretrain_spec import ObjectiveSpec, PretrainSpec
from bermo.runs.rows import Row, read_rows


def model_card(spec: PretrainSpec, result: Mapping[str, Any], config: PretrainedConfig) -> str:
    """Write what the encoder is, what it was made from, how well it guesses, and how to make it again."""
    text, title = spec.text, f"{config.num_hidden_layers} layers of width {config.hidden_size}"
    scores = ", ".join(f"{name} {value:.2f}" for name, value in result["values"].items())
    files = " and ".join(Path(file).name for file in text.files)
    start = spec.shape.model
    lines = [
        f"# {title}, pretrained from {_name(start) if start else 'random weights'}",
        "",
        f"- Shape: {_shape(spec)}; {result['num_parameters']:,} parameters,"
        f" {result['model_bytes'] / 1e6:.1f} MB.",
        f"- Text: {files}; {result['num_documents']:,} documents, {result['num_tokens']:,} tokens"
        f" of a vocabulary of {result['vocabulary']:,} pieces. Rows had {text.length} tokens"
        f"{_untrained(spec)}.",
        f"- Objective: {_objective(spec.objective)}.",
        f"- Training: {result['steps']:,} steps of {spec.pace.batch_size} rows"
        f" ({result['epochs']:.2f} passes over the text), {_habits(spec)}{spec.pace.precision},"
        f" seed {spec.seed}; {result['seconds']:.0f} s"
        f" on {result['device']} at {result['tokens_per_second']:,.0f} tokens/s.",
        f"- On held-out documents: {scores}. Knowing only how often each token comes gives a perplexity of"
        f" {math.exp(result['unigram_entropy']):.0f}.",
        f"- Made with torch {result['versions']['torch']},"
        f" transformers {result['versions']['transformers']}.",
        "",
        "Made by:",
        "",
        "```",
        command(spec),
        "```",
        "",
        "The text's licence holds for what you may do with it; name it here when you pass the model on.",
    ]
    return with_header(
        "\n".join(lines) + "\n",
        title=title,
        base=_name(start) if start else None,
        pipeline=None if spec.objective.kind in ("elmo", "xlnet") else "fill-mask",
        evaluated=[
            Evaluated(task="held-out", metric=name, value=value) for name, value in result["values"].items()
        ],
    )


def _shape(spec: PretrainSpec) -> str:
    if spec.shape.model is not None:
        return f"that of {_name(spec.shape.model)}, from which it went on"
    if spec.objective.kind == "elmo":
        elmo = spec.elmo.shape
        return (
            f"{sum(count for _, count in elmo.filters):,} character filters, {elmo.highways} highways,"
            f" LSTMs of {elmo.cells:,} cells projected to {elmo.projection} each way"
        )
    sizes, inner = spec.shape.sizes, spec.shape.inner_mix
    mixed = "" if inner == "none" else f", inner mix {inner}"
    positions = "relative" if spec.objective.kind == "xlnet" else f"{spec.shape.positions}"
    return f"{sizes.heads} heads, {sizes.intermediate} units inside a layer, {positions} positions{mixed}"


def _habits(spec: PretrainSpec) -> str:
    """Say the rate, and what else is not as by default."""
    pace, text = spec.pace, spec.text
    said = {
        f"peak rate {pace.peak_lr:g}": True,
        "LAMB": pace.optimizer == "lamb",
        f"layers left out at {pace.layer_drop:g}": pace.layer_drop > 0,
        f"weights averaged at {pace.average:g}": pace.average > 0,
        f"{text.short_steps} steps of {text.short_length} tokens first": text.short_length is not None,
    }
    return "".join(f"{words}, " for words, is_so in said.items() if is_so)


def _untrained(spec: PretrainSpec) -> str:
    if spec.objective.kind == "elmo":
        return ""
    if spec.objective.kind == "xlnet":
        return ": tokens further apart were never seen"
    return f": positions after that were never trained{' further' if spec.shape.model else ''}"


def _objective(objective: ObjectiveSpec) -> str:
    if objective.kind == "elmo":
        return "elmo, every word from those before it and from those behind it"
    if objective.kind == "xlnet":
        return (
            "xlnet, a sixth of the tokens in runs of words, each from the rest and from those before it in a"
            " random order; on held-out text the tokens that a masked LM masks, each from the unmasked ones"
        )
    return (
        f"{objective.kind}, masking {objective.masking}, {objective.share:.0%} of the tokens"
        f"{_taught(objective)}"
    )


def _taught(objective: ObjectiveSpec) -> str:
    """Name the teacher and what was learned from it."""
    if objective.teacher is None:
        return ""
    return (
        f", and the vectors of {_name(objective.teacher)}: words × {objective.teach_words:g} in"
        f" {'all layers' if objective.teach_layers == 'all' else 'the last layer'},"
        f" rows × {objective.teach_rows:g}"
    )


def _name(model: str) -> str:
    """Return a folder's last name: its path is its owner's business."""
    return Path(model).name if Path(model).is_dir() else model


def command(spec: PretrainSpec) -> str:
    """Write the command that makes the same encoder: every option that is not the default."""
    words = ["bermo pretrain --text", *(Path(file).name for file in spec.text.files)]
    plain = {leaf.dotted: leaf.default for leaf in leaves(PretrainSpec())}
    for leaf in leaves(spec):
        hidden = ("text.files", "text.cache", "pace.checkpoint_minutes", "pace.tracker")
        if leaf.default == plain[leaf.dotted] or leaf.dotted in hidden:
            continue
        value = Path(leaf.default).name if leaf.dotted == "text.words" else leaf.default
        if leaf.dotted in ("text.tokenizer", "shape.model", "objective.teacher"):
            value = _name(leaf.default)
        if isinstance(value, tuple):
            value = ",".join(value)
        words.append(f"--{leaf.flag}" if leaf.is_switch else f"--{leaf.flag} {value}")
    return " ".join(words)


def findings(spec: PretrainSpec, result: Mapping[str, Any], metrics: Path) -> Findings:
    """Return loss and held-out scores over the steps and, where there is one, the inner mix."""
    rows = read_rows(metrics)
    figures: list[Figure] = [_curve(rows, "loss", "Training loss", "nats")]
    for name in result["values"]:
        figures.append(_curve(rows, f"valid/{name}", f"Held-out {name}", name))
    if result["inner_weights"]:
        figures.append(_inner(result["inner_weights"]))
    facts = {
        "objective": spec.objective.kind,
        "parameters": f"{result['num_parameters']:,}",
        "steps": f"{result['steps']:,}",
        "seconds": f"{result['seconds']:.0f}",
        "device": str(result["device"]),
        **{f"held-out {name}": f"{value:.2f}" for name, value in result["values"].items()},
    }
    text = (
        "Held-out documents are guessed at the same places in every run. Knowing only how often each token"
        f" comes gives {result['unigram_entropy']:.2f} nats."
    )
    section = Section(title="Curves of pretraining", text=text, figures=tuple(figures))
    return Findings(title="Pretraining", facts=facts, sections=(section,))


def _curve(rows: list[Row], key: str, title: str, unit: str) -> Lines:
    measured = [row for row in rows if key in row]
    return Lines(
        title=title,
        x_label="step",
        y_label=unit,
        x=tuple(float(row["step"]) for row in measured),
        series={key.removeprefix("valid/"): tuple(row[key] for row in measured)},
    )


def _inner(weights: list[list[float]]) -> Heat:
    """Row: the reading layer; column: the layer it reads."""
    count = len(weights) + 1
    values = tuple(
        tuple(value if column <= row + 1 else None for column, value in enumerate(shares))
        for row, shares in enumerate(weights)
    )
    return Heat(
        title="Inner mix: what each layer reads",
        x_label="layer that is read",
        y_label="layer",
        columns=tuple(f"h{j}" for j in range(count)),
        rows=tuple(str(k) for k in range(2, count + 1)),
        values=values,
    )
