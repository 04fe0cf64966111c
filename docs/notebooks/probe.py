# %% [markdown]
# # Notebook: probe
# What does each layer of the encoder in the package know about a verb's tense? A linear classifier on every layer's
# vectors tells. `bermo probe` does this with penalties, controls and an untrained encoder beside it; this is the idea
# in thirty lines.

# %%
import torch

import bermo
from bermo.data.sentences import split

train, test = split("tense", (600, 200), seed=0)
print(train[0].label, "|", train[0].text[:70], "…")
print("classes:", sorted({one.label for one in train}))

# %% [markdown]
# Generated sentences have exact labels, and none is in both parts. The encoder reads each once; every layer's vectors are
# averaged over the tokens of a sentence.

# %%
encoder = bermo.load_encoder("box")
texts = [one.text for one in train + test]
vectors = bermo.text_vectors(encoder, texts, pooling="mean")
layers = [torch.as_tensor(vectors.read(name)).float() for name in vectors.names]
print("layers:", len(layers), "vectors of each:", tuple(layers[0].shape))

# %% [markdown]
# A ridge regression to ±1 is enough for a probe: W = (XᵀX + λI)⁻¹ Xᵀy on the training sentences.

# %%
signs = torch.tensor([1.0 if one.label == train[0].label else -1.0 for one in train + test])
known = len(train)
for depth, layer in enumerate(layers):
    inputs = torch.cat(
        [(layer - layer[:known].mean(0)) / layer[:known].std(0), torch.ones(len(layer), 1)], dim=1
    )
    gram = inputs[:known].T @ inputs[:known] + 100 * torch.eye(inputs.shape[1])
    answers = inputs[known:] @ torch.linalg.solve(gram, inputs[:known].T @ signs[:known])
    right = float(((answers > 0) == (signs[known:] > 0)).float().mean())
    print(f"layer {depth}: {100 * right:.1f} % of test sentences right")

# %% [markdown]
# A probe shows that a property can be read, not that the encoder uses it: that is what controls and fine-tuning are for
# ([probe](../how-to/probe.md)).
