"""The score of a pruned mix without its deeper layers: if the first ones score the same, the rest is dead.

    python benchmarks/depth.py RUN --data FOLDER [--out results/depth.json]

For k = 1 … L the model of RUN is rebuilt from its first k layers; the mix keeps its logits of h_0 … h_k, so
their shares grow to sum to 1. (With norm "across" the statistics are then over fewer layers too.) Nothing is
trained.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator

from bermo.data.features import make_features
from bermo.data.load import load_task
from bermo.data.scoring import score
from bermo.encoders.backbone import load_tokenizer
from bermo.files import write_json
from bermo.methods.evaluate import predict
from bermo.methods.student import student_from_teacher
from bermo.methods.teacher import load_teacher
from bermo.models.tasks import has_segments
from bermo.pruning.fold import count
from bermo.spec import DataSpec


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", help="the folder of the task's files")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    teacher = load_teacher(options.run)
    trained = teacher.trained
    spec = DataSpec(task=trained.task.name, folder=options.data, max_length=trained.max_length)
    data = load_task(replace(spec, limit=1000 if trained.task.name.startswith("box/") else None))
    tokenizer = load_tokenizer(teacher.folder)
    features = make_features(
        data.valid, data.task, data.labels, tokenizer, spec, has_segments(teacher.folder)
    )
    accelerator = Accelerator()
    model = teacher.model.to(accelerator.device)
    num_blocks = model.config.num_hidden_layers
    rows = {}
    for depth in range(1, num_blocks + 1):
        torch.manual_seed(0)
        cut = student_from_teacher(model, tuple(range(1, depth + 1))).to(accelerator.device)
        scored = score(features, predict(cut, features, 64, accelerator))
        rows[depth] = {"score": scored.score, "encoder_kept": count(cut).encoder_kept}
        print(f"first {depth:2d} layers: {scored.main} {scored.score:.2f}", flush=True)
    weights = dict(zip(model.mix.layers, model.mix.weights.tolist(), strict=True))
    result = {"run": options.run.name, "scores_by_depth": rows, "mix_weights": weights}
    if options.out is not None:
        write_json(options.out, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
