"""Heat maps of the same thing share their limits, given ones too."""

from bermo.figures.data import Heat, Table
from bermo.figures.scale import on_one_scale


def heat(title: str, *values: float | None, limits: tuple[float, float] | None = None) -> Heat:
    columns = tuple(map(str, range(len(values))))
    return Heat(
        title=title, x_label="x", y_label="y", columns=columns, rows=("r",), values=(values,), limits=limits
    )


def test_the_same_measure_of_two_models_has_one_scale() -> None:
    table = Table(title="t", columns=("a",), rows=())
    figures = (
        heat("dense: entropy", 1.0, 4.0),
        heat("pruned: entropy", 0.5, None),
        heat("dense: share", 0.1, 0.2),
        heat("pruned: share", 0.3, 0.4, limits=(0.0, 1.0)),
        table,
    )
    shown = on_one_scale(figures)
    limits = [figure.limits for figure in shown if isinstance(figure, Heat)]
    assert limits == [(0.5, 4.0), (0.5, 4.0), (0.0, 1.0), (0.0, 1.0)]
    assert shown[-1] == table


def test_a_grid_of_nothing_has_no_limits() -> None:
    (empty,) = on_one_scale([heat("m: none", None)])
    assert isinstance(empty, Heat)
    assert empty.limits is None
