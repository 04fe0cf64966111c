"""ModernBERT's layers over long texts on a CPU: windows by blocks against a mask of all pairs of tokens.

    python benchmarks/windows.py [--out results/windows-x86.json]

Three layers of 384 units, of which the first sees all tokens and the others 64 to each side, 2,048 tokens in
all, an eighth of the first text padding; a step forward and back in fp32, the median of six by turns.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModel, ModernBertConfig

from bermo.encoders.windows import NAME, set_windows_
from bermo.files import write_json
from bermo.machine import processor

TOKENS, TURNS = 2048, 6
LENGTHS = (512, 1024, 2048)
WAYS = ("sdpa", NAME)


def seconds_of(model: torch.nn.Module, batch: dict[str, Tensor]) -> float:
    """Take a step's two passes."""
    started = time.perf_counter()
    model(**batch).last_hidden_state.square().mean().backward()
    taken = time.perf_counter() - started
    model.zero_grad(set_to_none=True)
    return taken


def measured(length: int, tokens: int, units: int, turns: int) -> dict[str, float]:
    """Return the median seconds with a mask and by blocks."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=1000,
        **dict.fromkeys(("pad_token_id", "eos_token_id", "bos_token_id", "cls_token_id", "sep_token_id"), 0),
        hidden_size=units,
        num_hidden_layers=3,
        num_attention_heads=max(1, units // 64),
        intermediate_size=2 * units,
        max_position_embeddings=max(LENGTHS),
    )
    model = AutoModel.from_config(config).train()
    set_windows_(model)
    rows = max(1, tokens // length)
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[0, length - length // 8 :] = 0
    batch = {"input_ids": torch.randint(5, 1000, (rows, length)), "attention_mask": mask}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(turns + 1):
        for way, times in taken.items():
            model.config._attn_implementation = way
            times.append(seconds_of(model, batch))
    # The first turn sets libraries up.
    return {way: statistics.median(times[1:]) for way, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="one short text, to try the script")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for length in LENGTHS[: 1 if options.tiny else None]:
        taken = measured(length, TOKENS, 64, 1) if options.tiny else measured(length, TOKENS, 384, TURNS)
        mask, blocks = (round(1000 * taken[way], 1) for way in WAYS)
        rows.append({"length": length, "mask_ms": mask, "blocks_ms": blocks})
        print(
            f"{length:>5} tokens  mask {mask:8.1f} ms  blocks {blocks:8.1f} ms  {mask / blocks:5.2f} ×",
            flush=True,
        )
    if options.out is not None:
        facts = {"machine": processor().name, "threads": torch.get_num_threads(), "torch": torch.__version__}
        write_json(options.out, facts | {"rows": rows})


if __name__ == "__main__":
    main()
