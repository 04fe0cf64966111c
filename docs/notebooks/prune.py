# %% [markdown]
# # Notebook: prune
# Movement pruning in a loop of your own: scores learn with the weights, a cubic schedule lowers the density, and folding
# leaves an ordinary model with zeros.

# %%
import torch

import bermo

torch.manual_seed(0)
model = bermo.BermoForSequenceClassification.from_backbone("box", num_labels=2)
schedule = bermo.CubicSchedule(total_steps=20, warmup_steps=4)
pruner = bermo.prune_(model, bermo.Movement(density=0.25), schedule)
print("sites:", len(pruner.sites), "matrices")

# %% [markdown]
# The schedule: dense during the warm-up, then steep, then flat.

# %%
print(
    "density at steps 0, 5, 10, 15, 20:", [round(schedule.value(k, 1.0, 0.25), 3) for k in (0, 5, 10, 15, 20)]
)

# %%
optimizer = torch.optim.AdamW(
    [
        {"params": pruner.score_parameters(), "lr": 1e-2, "weight_decay": 0.0},
        {"params": [p for n, p in model.named_parameters() if "classifier" in n or "mix" in n], "lr": 1e-3},
    ]
)
pruner.watch(optimizer)  # movement ranks by what AdamW knows of the gradients
labels = torch.tensor([0, 1] * 4)
for _ in range(20):
    tokens = torch.where(labels[:, None] == 1, 40, 50) + torch.randint(0, 3, (8, 6))
    loss = model(input_ids=tokens, labels=labels).loss + pruner.penalty()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    pruner.step()
print("kept while masked:", bermo.count(model))

# %% [markdown]
# Folding writes the masks into the weights. The outputs stay the same to the bit.

# %%
model.eval()
with torch.no_grad():
    before = model(input_ids=tokens).logits
    bermo.fold_(model)
    after = model(input_ids=tokens).logits
print("same logits after folding:", torch.equal(before, after))
weight = model.bermo.backbone.encoder.layer[0].intermediate.dense.weight
print("zeros in a feed-forward matrix:", f"{float((weight == 0).float().mean()):.2f}")
