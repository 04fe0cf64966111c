"""Which tiles of pairs of tokens attention to distances is computed by (`nn.fast.relative`)."""

import triton

# Warps, stages and the most registers of a thread, by kernel and by whether there are shifts: the fastest of
# nine on an H200, for 128 tokens and heads of 64 units. Fewer registers let two programs share its
# multiprocessors.
FASTEST: dict[tuple[str, bool], tuple[int, ...]] = {
    ("forward", False): (4, 1),
    ("forward", True): (4, 2),
    ("tokens", False): (8, 2, 128),
    ("tokens", True): (4, 1, 168),
    ("distances", False): (4, 3),
    ("distances", True): (4, 1),
}


def tile_options(num_tokens: int, size: int, kernel: str, has_shifts: bool = False) -> dict[str, int]:
    """Tiles of N tokens, so many in all, and how a program computes one, by the name of a kernel."""
    block = 32 if num_tokens <= 32 else 64
    is_usual = block == 64 and size <= 64
    ways = (
        FASTEST[kernel, has_shifts]
        if is_usual
        else (8 if size > 64 else 4, 3 if kernel == "distances" else 1)
    )
    return {
        "N": block,
        "BLOCKS": triton.cdiv(num_tokens, block),
        "WIDTH": max(16, triton.next_power_of_2(size)),
        **dict(zip(("num_warps", "num_stages", "maxnreg"), ways, strict=False)),
    }


def num_columns(num_tokens: int) -> int:
    """Rows and columns of a square of pairs: whole tiles."""
    options = tile_options(num_tokens, 1, "forward")
    return options["N"] * options["BLOCKS"]
