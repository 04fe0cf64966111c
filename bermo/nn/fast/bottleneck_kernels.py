"""Kernels of `nn.fast.bottleneck`: sums with a scale and a shift, ReLU, and the sums of their gradients.

A program works on a tile of rows and columns. It writes the sums over its rows to its row of one table that
all kernels of a backward pass share, from a given column on; `sum_table` adds the rows up for all of them.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dense_kernels import _tile


@triton.jit
def _kept(
    seed, block, rows, P, ROUNDS: tl.constexpr, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    """Dropout's factors of a tile; four neighbours share one draw of four random numbers."""
    row = tl.program_id(2) * rows + block * HEIGHT + tl.arange(0, HEIGHT)
    quarter = tl.program_id(1) * (WIDTH // 4) + tl.arange(0, WIDTH // 4)
    counter = row[:, None] * (tl.cdiv(D, WIDTH) * (WIDTH // 4)) + quarter[None, :]
    first, second, third, fourth = tl.rand4x(tl.load(seed), counter, ROUNDS)
    even = tl.join((first >= P).to(tl.int8), (third >= P).to(tl.int8))
    odd = tl.join((second >= P).to(tl.int8), (fourth >= P).to(tl.int8))
    is_kept = tl.reshape(tl.join(even, odd), (HEIGHT, WIDTH))
    return tl.where(is_kept != 0, 1.0 / (1.0 - P), 0.0)


@triton.jit
def _values(source, at, exists):
    """A tile in float32."""
    return tl.load(source + at, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _vector(source, column, D: tl.constexpr):
    """A tile's columns of a vector in float32."""
    return tl.load(source + column, mask=column < D, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _store_sums(table, values, column, D: tl.constexpr, start, COLUMNS: tl.constexpr):
    """Write the sums over a tile's rows to the table."""
    target = table + tl.program_id(0).to(tl.int64) * COLUMNS + start + column
    tl.store(target, tl.sum(values, 0), mask=column < D)


@triton.jit
def scaled_forward(
    h,
    x,
    scale,
    shift,
    seed,
    y,
    half,
    rows,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """(m ⊙ h + x) ⊙ s + t of a tile in the dtype of the products, and with WIDE also in float32."""
    column, at, exists = _tile(tl.program_id(0), rows, D, HEIGHT, WIDTH)
    total = _values(h, at, exists)
    if DROP:
        total *= _kept(seed, tl.program_id(0), rows, P, ROUNDS, D, HEIGHT, WIDTH)
    total += _values(x, at, exists)
    total = total * _vector(scale, column, D) + _vector(shift, column, D)
    if WIDE:
        tl.store(y + at, total, mask=exists)
    tl.store(half + at, total.to(half.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["at_column"])
def scaled_backward(
    grad,
    half_grad,
    h,
    x,
    scale,
    seed,
    dx,
    dh,
    table,
    rows,
    at_column,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    HALF: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """dx and dh of a tile, from the gradients of both results, and its sums for s, t and the bias in h."""
    column, at, exists = _tile(tl.program_id(0), rows, D, HEIGHT, WIDTH)
    if WIDE:
        g = _values(grad, at, exists)
        if HALF:
            g += _values(half_grad, at, exists)
    else:
        g = _values(half_grad, at, exists)
    total = _values(h, at, exists)
    if DROP:
        kept = _kept(seed, tl.program_id(0), rows, P, ROUNDS, D, HEIGHT, WIDTH)
        total *= kept
    total += _values(x, at, exists)
    of_x = g * _vector(scale, column, D)
    tl.store(dx + at, of_x, mask=exists)
    if DROP:
        of_x *= kept
    of_h = of_x.to(dh.dtype.element_ty)
    tl.store(dh + at, of_h, mask=exists)
    _store_sums(table, g * total, column, D, at_column, COLUMNS)
    _store_sums(table, g, column, D, at_column + D, COLUMNS)
    # Rounded values are summed, those that the products read, as torch does.
    _store_sums(table, of_h.to(tl.float32), column, D, at_column + 2 * D, COLUMNS)


@triton.jit(do_not_specialize=["at_column"])
def relu_backward(
    grad,
    a,
    du,
    table,
    rows,
    at_column,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradient of a tile before ReLU, from that of its result a, and its sums for the bias."""
    column, at, exists = _tile(tl.program_id(0), rows, D, HEIGHT, WIDTH)
    of_u = tl.where(_values(a, at, exists) > 0, _values(grad, at, exists), 0.0)
    tl.store(du + at, of_u.to(du.dtype.element_ty), mask=exists)
    _store_sums(table, of_u, column, D, at_column, COLUMNS)


@triton.jit
def open_forward(
    joined,
    scale,
    shift,
    shared_scale,
    shared_shift,
    narrow,
    shared,
    rows,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Scale and shift the second and the third part of joined rows (rows, 3 D)."""
    column, at, exists = _tile(tl.program_id(0), rows, D, HEIGHT, WIDTH)
    row = (tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    source = row[:, None] * (3 * D) + D + column[None, :]
    first = _values(joined, source, exists) * _vector(scale, column, D) + _vector(shift, column, D)
    second = _values(joined, source + D, exists) * _vector(shared_scale, column, D)
    second += _vector(shared_shift, column, D)
    tl.store(narrow + at, first, mask=exists)
    tl.store(shared + at, second.to(shared.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["at_column"])
def open_backward(
    narrow_grad,
    shared_grad,
    joined,
    scale,
    shared_scale,
    djoined,
    table,
    rows,
    at_column,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradients of the second and the third part of joined rows, with sums as in `scaled_backward`."""
    column, at, exists = _tile(tl.program_id(0), rows, D, HEIGHT, WIDTH)
    row = (tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    source = row[:, None] * (3 * D) + D + column[None, :]
    for part in tl.static_range(2):
        if part == 0:
            g = _values(narrow_grad, at, exists)
            of_h = (g * _vector(scale, column, D)).to(djoined.dtype.element_ty)
        else:
            g = _values(shared_grad, at, exists)
            of_h = (g * _vector(shared_scale, column, D)).to(djoined.dtype.element_ty)
        tl.store(djoined + source + part * D, of_h, mask=exists)
        total = _values(joined, source + part * D, exists)
        _store_sums(table, g * total, column, D, at_column + part * 3 * D, COLUMNS)
        _store_sums(table, g, column, D, at_column + part * 3 * D + D, COLUMNS)
        _store_sums(table, of_h.to(tl.float32), column, D, at_column + part * 3 * D + 2 * D, COLUMNS)


@triton.jit
def place_three(
    first,
    second,
    third,
    pair,
    joined,
    table,
    rows,
    D: tl.constexpr,
    BLOCKS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write two (rows, D) side by side, the third into the first part of joined rows, and all their sums."""
    row = (tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)[:, None]
    source = tl.program_id(1) // BLOCKS
    column = (tl.program_id(1) % BLOCKS) * WIDTH + tl.arange(0, WIDTH)
    exists = (row < rows) & (column < D)[None, :]
    at = row * D + column[None, :]
    if source == 0:
        value = tl.load(first + at, mask=exists, other=0.0)
        tl.store(pair + row * (2 * D) + column[None, :], value, mask=exists)
    elif source == 1:
        value = tl.load(second + at, mask=exists, other=0.0)
        tl.store(pair + row * (2 * D) + D + column[None, :], value, mask=exists)
    else:
        value = tl.load(third + at, mask=exists, other=0.0)
        tl.store(joined + row * (3 * D) + column[None, :], value, mask=exists)
    _store_sums(table, value.to(tl.float32), source * D + column, (source + 1) * D, 0, COLUMNS)


@triton.jit(do_not_specialize=["num_rows"])
def sum_table(
    table,
    wide,
    half,
    num_rows,
    COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The sums over the rows of a table, in float32 and in another dtype."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    start = 0
    # Triton's interpreter knows no range over a number that was given at run time.
    while start < num_rows:
        row = start + tl.arange(0, HEIGHT)
        exists = (row < num_rows)[:, None] & (column < COLUMNS)[None, :]
        total += tl.load(
            table + row.to(tl.int64)[:, None] * COLUMNS + column[None, :], mask=exists, other=0.0
        )
        start += HEIGHT
    added = tl.sum(total, 0)
    tl.store(wide + column, added, mask=column < COLUMNS)
    tl.store(half + column, added.to(half.dtype.element_ty), mask=column < COLUMNS)
