"""Draw how plain and mixed encoders live or die under pruning, from results/stability-gpu.json.

    pip install 'bermo[figures]'; python benchmarks/stability_figure.py [--data results/stability-gpu.json] [--out results/stability.svg]

Top: the training loss. Below: the gradient norm of layers 1, 4, 8 and 12. The grey line is the share of weights kept.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent.parent / "results"
PANELS = {
    "zeros-plain-9": "movement, plain: dies at density 0.9",
    "zeros-mix-9": "movement, mix: survives on its lower layers",
    "magnitude-plain-9": "magnitude, plain: survives",
}
LAYERS = {1: "#1b6ca8", 4: "#3fa796", 8: "#e0a030", 12: "#c44536"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=RESULTS / "stability-gpu.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "stability.svg")
    options = parser.parse_args()
    curves = json.loads(options.data.read_text(encoding="utf-8"))["curves"]
    figure, axes = plt.subplots(2, len(PANELS), figsize=(12, 5.6), sharex=True, sharey="row")
    for column, (name, title) in enumerate(PANELS.items()):
        rows = curves[name]
        steps = [row["step"] for row in rows]
        top, bottom = axes[0][column], axes[1][column]
        top.plot(steps, [row["loss"] for row in rows], color="black", linewidth=1.4)
        top.plot(steps, [row["density"] for row in rows], color="grey", linestyle="--", linewidth=1)
        top.axhline(0.693, color="#c44536", linewidth=0.7, linestyle=":")
        top.set_title(title, fontsize=10)
        top.set_ylim(0, 1.05)
        for layer, colour in LAYERS.items():
            values = [max(row["gradient"][layer - 1], 1e-11) for row in rows]
            bottom.semilogy(steps, values, color=colour, linewidth=1.2, label=f"layer {layer}")
        bottom.set_xlabel("step")
    axes[0][0].set_ylabel("loss (black), density (grey)")
    axes[0][0].text(6300, 0.705, "guessing", fontsize=8, color="#c44536", ha="right", va="bottom")
    axes[1][0].set_ylabel("gradient norm of a layer")
    axes[1][2].legend(frameon=False, fontsize=8, loc="lower right")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("gte-small on SST-2, 10 % of the encoder's weights kept, seed 9", fontsize=11)
    figure.tight_layout()
    figure.savefig(options.out)


if __name__ == "__main__":
    main()
