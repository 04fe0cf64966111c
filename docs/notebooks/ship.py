# %% [markdown]
# # Notebook: ship
# Train a small classifier while half of its heads and neurons close, delete them, and write the rest for onnxruntime.
# The commands are those of a terminal; `main` runs one from Python.

# %%
from pathlib import Path

from transformers import AutoModelForSequenceClassification

from bermo.cli import main

train = "train --task box/subject-number --limit 240 --epochs 1 --max-length 32 --batch-size 8 --device cpu --lr 5e-4"
main(f"{train} --prune heads-and-neurons --density 0.5 --rank size --out runs/units".split())

# %% [markdown]
# The run is a model with closed units. `shrink` deletes them: the logits stay as they were up to rounding.

# %%
main(["shrink", "runs/units", "--out", "small"])

# %%
before = AutoModelForSequenceClassification.from_pretrained("runs/units/model")
after = AutoModelForSequenceClassification.from_pretrained("small")
print("fewer parameters:", after.num_parameters() < before.num_parameters())

# %% [markdown]
# The export is compared with the torch model before it is written; what answers otherwise is refused.

# %%
main(["export", "small", "--to", "onnx", "--out", "small-onnx"])
Path("texts.txt").write_text("The dogs see a tower.\nThe dog sees a tower.\n")
main(["predict", "small-onnx", "texts.txt"])
