"""Kernels of `nn.fast.mixing`: the layer mix and its gradients. Four layers share a draw of four numbers."""

import triton
import triton.language as tl


@triton.jit
def _row(layers, j: tl.constexpr, at, exists):
    """One token of layer j, in float32."""
    return tl.load(layers[j] + at, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _kept(seed, counter, total, j: tl.constexpr, P, ROUNDS: tl.constexpr):
    """Dropout's factors of layer j; the compiler sees that four layers use the same draw, and draws once."""
    first, second, third, fourth = tl.rand4x(seed, counter + (j // 4) * total, ROUNDS)
    if j % 4 == 0:
        chance = first
    elif j % 4 == 1:
        chance = second
    elif j % 4 == 2:
        chance = third
    else:
        chance = fourth
    return tl.where(chance >= P, 1.0 / (1.0 - P), 0.0)


@triton.jit
def _unit(value, is_column, D: tl.constexpr, eps):
    """Standardise over the hidden units: the result and ρ."""
    mean = tl.sum(value) / D
    centred = tl.where(is_column, value - mean, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
    return centred * spread, spread


# A kernel of 13 layers takes seconds to build, so one is built for all lengths of a text.
VARYING = ["num_tokens", "total"]


@triton.jit(do_not_specialize=VARYING)
def mix_forward(
    layers,
    shares,
    seed,
    rows,
    out,
    num_tokens,
    total,
    eps,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    FEW: tl.constexpr,
):
    """The mix of one token: of each token, or with FEW of the chosen one of each text."""
    token = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    exists = column < D
    source = token
    if FEW:
        source = token * num_tokens + tl.load(rows + token).to(tl.int32)
    at = source.to(tl.int64) * D + column
    counter = token * D + column
    seed_value = tl.load(seed)
    mean = tl.zeros([WIDTH], tl.float32)
    if NORM == "across":
        for j in tl.static_range(J):
            mean += _row(layers, j, at, exists)
        mean /= J
    squares = tl.zeros([WIDTH], tl.float32)
    mixed = tl.zeros([WIDTH], tl.float32)
    for j in tl.static_range(J):
        value = _row(layers, j, at, exists)
        if NORM == "across":
            value -= mean
            squares += value * value
        elif NORM == "within":
            value, _ = _unit(value, exists, D, eps)
        if DROP:
            value *= _kept(seed_value, counter, total, j, P, ROUNDS)
        mixed += tl.load(shares + j) * value
    if NORM == "across":
        mixed /= tl.sqrt(squares / J + eps)
    tl.store(out + token.to(tl.int64) * D + column, mixed.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _token_backward(
    layers,
    grads,
    shares,
    seed_value,
    g,
    at,
    counter,
    total,
    eps,
    exists,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    JS: tl.constexpr,
):
    """Write the gradient of each layer of one token; return its part of dc."""
    number = tl.arange(0, JS)
    of_shares = tl.zeros([JS], tl.float32)
    mean = tl.zeros([WIDTH], tl.float32)
    spread = tl.zeros([WIDTH], tl.float32)
    pull = tl.zeros([WIDTH], tl.float32)
    turn = tl.zeros([WIDTH], tl.float32)
    if NORM == "across":
        for j in tl.static_range(J):
            mean += _row(layers, j, at, exists)
        mean /= J
        for j in tl.static_range(J):
            value = _row(layers, j, at, exists) - mean
            spread += value * value
            pushed = tl.load(shares + j) * g
            if DROP:
                pushed *= _kept(seed_value, counter, total, j, P, ROUNDS)
            pull += pushed
            turn += pushed * value
        spread = 1.0 / tl.sqrt(spread / J + eps)
        pull /= J
        turn = turn * spread / J
    for j in tl.static_range(J):
        value = _row(layers, j, at, exists)
        kept = g
        if DROP:
            kept = g * _kept(seed_value, counter, total, j, P, ROUNDS)
        pushed = tl.load(shares + j) * kept
        if NORM == "across":
            value = (value - mean) * spread
            of_layer = (pushed - pull - value * turn) * spread
        elif NORM == "within":
            value, rho = _unit(value, exists, D, eps)
            of_layer = (pushed - tl.sum(pushed) / D - value * (tl.sum(pushed * value) / D)) * rho
        else:
            of_layer = pushed
        of_shares += tl.where(number == j, tl.sum(tl.where(exists, kept * value, 0.0)), 0.0)
        tl.store(grads[j] + at, of_layer.to(grads[j].dtype.element_ty), mask=exists)
    return of_shares


@triton.jit(do_not_specialize=[*VARYING, "num_rows", "num"])
def mix_backward(
    layers,
    grads,
    shares,
    seed,
    rows,
    grad,
    parts,
    num_rows,
    num_tokens,
    total,
    num,
    eps,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    FEW: tl.constexpr,
    JS: tl.constexpr,
):
    """Of `num` tokens the gradient of each layer, zeros for a token that was not mixed, and a part of dc."""
    column = tl.arange(0, WIDTH)
    number = tl.arange(0, JS)
    seed_value = tl.load(seed)
    of_shares = tl.zeros([JS], tl.float32)
    source = tl.program_id(0) * num
    end = source + num
    while source < end:
        is_read = source < num_rows
        exists = (column < D) & is_read
        at = source.to(tl.int64) * D + column
        token = source
        if FEW:
            token = source // num_tokens
            chosen = tl.load(rows + token, mask=is_read, other=-1).to(tl.int32)
            is_read = is_read & (chosen == source % num_tokens)
        if is_read:
            g = tl.load(grad + token.to(tl.int64) * D + column, mask=exists, other=0.0)
            of_shares += _token_backward(
                layers,
                grads,
                shares,
                seed_value,
                g.to(tl.float32),
                at,
                token * D + column,
                total,
                eps,
                exists,
                J,
                D,
                WIDTH,
                NORM,
                P,
                DROP,
                ROUNDS,
                JS,
            )
        elif FEW:
            for j in tl.static_range(J):
                zeros = tl.zeros([WIDTH], tl.float32).to(grads[j].dtype.element_ty)
                tl.store(grads[j] + at, zeros, mask=exists)
        source += 1
    tl.store(parts + tl.program_id(0) * J + number, of_shares, mask=number < J)
