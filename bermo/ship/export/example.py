"""example.py of an export for onnxruntime: the model run with onnxruntime and tokenizers alone, in ten lines.

What depends on the model is written into the lines: the longest text, the padding, and how answers are shown.
"""

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase

from bermo.data.tasks import Kind
from bermo.runs.task_file import TrainedTask

EXAMPLE_FILE = "example.py"
SCRIPT = '''\
"""The model of this folder with onnxruntime and tokenizers alone: python example.py {words}"""
import sys, numpy, onnxruntime, tokenizers
from pathlib import Path
folder, texts, labels = Path(__file__).parent, sys.argv[1:], {labels}
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_truncation({longest})
tokenizer.enable_padding(direction="{side}", pad_id={pad}, pad_type_id={segment}, pad_token={token})
session = onnxruntime.InferenceSession(folder / "{graph}", providers=["CPUExecutionProvider"])
rows = tokenizer.encode_batch({rows})
known = dict(input_ids=[r.ids for r in rows], attention_mask=[r.attention_mask for r in rows],
             token_type_ids=[r.type_ids for r in rows])
inputs = {{i.name: numpy.array(known[i.name]){shape} for i in session.get_inputs()}}
(found,) = session.run(["{output}"], inputs)
for row, answer in zip(rows, found):
    print({shown})
'''
SHOWN: Mapping[Kind, str] = {
    "classification": "labels[answer.argmax()], answer.tolist()",
    "multi-label": "[label for label, logit in zip(labels, answer) if logit > 0], answer.tolist()",
    "regression": "float(answer[0])",
    "reranker": "1 / (1 + numpy.exp(-float(answer[0])))",
    "tagging": "[(word, labels[tag.argmax()]) for word, tag in zip(row.tokens, answer)]",
    "embedding": "answer.tolist()",
}
"""How each kind of answer is shown; questions and choices need more than ten lines."""


def example_script(
    trained: TrainedTask, tokenizer: PreTrainedTokenizerBase, graph: str, is_apart: bool = False
) -> str | None:
    """Return the script of an export whose graph is called so; None for a kind that has none."""
    kind = trained.task.kind
    if kind not in SHOWN:
        return None
    is_pair = kind == "reranker" or (len(trained.text) == 2 and kind != "embedding")
    return SCRIPT.format(
        words='"a text" "its pair" …' if is_pair else '"a text" "another" …',
        labels=list(trained.labels),
        longest=min(trained.max_length, tokenizer.model_max_length),
        side=tokenizer.padding_side,
        pad=tokenizer.pad_token_id or 0,
        segment=tokenizer.pad_token_type_id,
        token=repr(str(tokenizer.pad_token or "")),
        graph=graph,
        rows="list(zip(texts[::2], texts[1::2]))" if is_pair and not is_apart else "texts",
        shape=".reshape(len(rows) // 2, 2, -1)" if is_apart else "",
        output="sentence_embedding" if kind == "embedding" else "logits",
        shown=SHOWN[kind],
    )
