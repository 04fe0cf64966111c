"""The layout of a model on the hub, in which transformers.js, fastembed and sentence-transformers look.

    onnx/model.onnx             the graph in fp32
    onnx/model_quantized.onnx   the graph in int8, where the form is int8
    config.json                 of the encoder's own family, with labels: what these tools know
    tokenizer files             special_tokens_map.json too, which transformers 5 no longer writes
    modules.json …              of a sentence encoder; model.safetensors too, where stock code can build it
    README.md                   the card, with what was compared and on which processor

A graph of a sentence encoder gives `last_hidden_state`, which these tools pool, beside `sentence_embedding`.
"""

from pathlib import Path

from transformers import PreTrainedModel

from bermo.data.tasks import PIPELINES, Kind
from bermo.encoders.card import with_header
from bermo.encoders.sentence import write_settings
from bermo.files import write_json, write_text
from bermo.machine import processor
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.runs.model_files import HUB_GRAPHS
from bermo.runs.stock import stock_config
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import TrainedFolder
from bermo.ship.export.compare import Compared, agreement

QUANTIZED, WHOLE = HUB_GRAPHS


def move_graphs(folder: Path, is_quantized: bool) -> None:
    """Put the graph that was written where these tools look; that in fp32 is there already."""
    (folder / "model.onnx").replace(folder / (QUANTIZED if is_quantized else WHOLE))


def write_companions(model: PreTrainedModel, opened: TrainedFolder, folder: Path) -> None:
    """Write config, tokenizer and, for a sentence encoder, how it pools and its weights."""
    config = stock_config(model.config, opened.trained)
    if isinstance(model, BermoForSentenceEmbedding):
        if model.is_plain:
            model.save_pretrained(folder)
        write_settings(folder, model.settings, model.config.hidden_size)
    config.save_pretrained(folder)
    tokenizer = opened.load_tokenizer()
    tokenizer.save_pretrained(folder)
    known = tokenizer.special_tokens_map.items()
    special = {name: token for name, token in known if isinstance(token, str)}
    write_json(folder / "special_tokens_map.json", special)


def write_card(folder: Path, trained: TrainedTask, compared: Compared, title: str) -> None:
    """Write the card: how the files are used, and what was compared."""
    kind = trained.task.kind
    files = [path for path in (WHOLE, QUANTIZED) if (folder / path).exists()]
    is_int8 = QUANTIZED in files
    lines = [
        f"# {title}",
        "",
        *(f"- `{name}`, {(folder / name).stat().st_size / 1e6:.1f} MB" for name in files),
        "",
        f"On {compared.texts} texts ({compared.on}) the answers of {'the int8' if is_int8 else 'this'} graph"
        f" differ by {compared.relative_error:.2%} from those of the model in torch, in fp32, and"
        f" {agreement(compared.same_answers, compared.farthest)} ({processor().name}).",
        *_scores(compared),
        "",
        "```js",
        'import { pipeline } from "@huggingface/transformers";',
        f'const run = await pipeline("{_js_task(kind)}", "this repository", {{ dtype: "'
        f'{"q8" if is_int8 else "fp32"}" }});',
        "```",
        "",
        "`example.py` runs it with onnxruntime and tokenizers alone."
        if (folder / "example.py").exists()
        else "",
    ]
    write_text(
        folder / "README.md",
        with_header("\n".join(lines).rstrip() + "\n", title=title, pipeline=PIPELINES[kind]),
    )


def _js_task(kind: Kind) -> str:
    return "feature-extraction" if kind == "embedding" else PIPELINES[kind]


def _scores(compared: Compared) -> list[str]:
    if compared.score_after is None:
        return []
    return [f"Score {compared.score_before:.2f} before, {compared.score_after:.2f} after."]
