# %% [markdown]
# # Notebook: the mix
# A learned mix of all layers on the encoder in the package: what it adds, what it costs, and what its weights say.

# %%
import tempfile

import torch
from transformers import AutoModelForSequenceClassification

import bermo

torch.manual_seed(0)
model = bermo.BermoForSequenceClassification.from_backbone("box", num_labels=2)
plain = bermo.BermoForSequenceClassification.from_backbone("box", num_labels=2, mix="none")
print("parameters of the mix:", sum(p.numel() for p in model.mix.parameters()))
print("layers that are mixed:", len(model.mix.weights))

# %% [markdown]
# The mix is one number for each layer and one scale. Its weights are a softmax, so they sum to 1.

# %%
print("shares:", [round(share, 3) for share in model.mix.weights.tolist()])
assert abs(model.mix.weights.sum().item() - 1) < 1e-6

# %% [markdown]
# The mix alone works on any list of hidden states. At inference it streams: each layer is added when the encoder has made
# it, and the answer is that of the stacked form.

# %%
mix = bermo.LayerMix(num_layers=7, norm="across", dropout=0.0).eval()
layers = [torch.randn(2, 5, 224) for _ in range(7)]
mixed = mix(layers)
print("mixed:", tuple(mixed.shape))

stack = torch.stack(layers)
mean, deviation = stack.mean(0), stack.std(0, correction=0)
shares = mix.weights[:, None, None, None]
by_hand = mix.scale * (shares * (stack - mean) / (deviation**2 + mix.eps).sqrt()).sum(0)
print("largest difference to the formula:", f"{(mixed - by_hand).abs().max().item():.0e}")
assert torch.allclose(mixed, by_hand, atol=1e-5)

# %% [markdown]
# A model with a mix saves and reloads with the Auto classes, to the bit.

# %%
batch = {"input_ids": torch.tensor([[2, 40, 50, 60, 3]])}
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    model.eval().save_pretrained(folder)
    again = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    print("same logits:", torch.equal(model(**batch).logits, again(**batch).logits))
