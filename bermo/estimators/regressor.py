"""A predictor of numbers for texts with the interface of scikit-learn."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bermo.errors import BermoError
from bermo.estimators.options import read_options
from bermo.estimators.trained import AskedModel, check_fitted, read_saved, train_rows, trained_folder

TASK = "own/regression"


class Regressor:
    """Predicts a number for each text: as `Classifier`, but labels are numbers on a scale.

    regressor = bermo.Regressor("box", epochs=3).fit(texts, stars)

        >>> texts = [f"a {word} film, number {i}" for i in range(30) for word in ("good", "bad")]
        >>> regressor = bermo.Regressor("box", epochs=1).fit(texts, [5, 1] * 30)
        >>> regressor.predict(["a good film", "a bad film"]).shape
        (2,)
    """

    def __init__(
        self,
        model: str | Path = "box",
        *,
        out: str | Path | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        self._options = read_options(TASK, {"model": model, "out": out, "verbose": verbose, **options})
        self._asked: AskedModel | None = None

    def __repr__(self) -> str:
        return self._options.show(type(self).__name__)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options."""
        return dict(self._options.given)

    def set_params(self, **options: Any) -> Self:
        """Change options; the next `fit` uses them."""
        self._options = read_options(TASK, {**self._options.given, **options})
        return self

    def fit(self, texts: Any, labels: Any = None, valid: Any = None) -> Self:
        """Train on texts with numbers; `valid` as for `Classifier`."""
        trained = train_rows(self._options, texts, labels, valid)
        self.result_ = trained.result
        self._open(trained.folder, trained.is_temporary)
        return self

    def predict(self, texts: Any) -> npt.NDArray[np.float64]:
        """Return a number for each text."""
        return np.array([answer["value"] for answer in self._fitted().ask(texts)])

    def score(self, texts: Any, labels: Any = None) -> float:
        """Return R², the share of the numbers' variance that is explained: 1 − Σ(y − ŷ)² / Σ(y − ȳ)²."""
        wanted = np.array(self._fitted().numbers_in(texts, labels))
        if (wanted == wanted[0]).all():
            what = "The label is" if len(wanted) == 1 else f"All {len(wanted)} labels are"
            hint = "but R² is a share of the labels' variance. Give rows of different numbers."
            raise BermoError(f"{what} {wanted[0]:g}, {hint}")
        left = ((wanted - self.predict(texts)) ** 2).sum()
        return float(1 - left / ((wanted - wanted.mean()) ** 2).sum())

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, which transformers and the verbs of bermo can open too."""
        self._fitted().save(folder, self._options.given, [])

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open what `save` wrote, or any such model in the folder of a run, of a model or of an export."""
        path = trained_folder(folder)
        made = cls(**read_saved(path).options)
        made._open(path)
        return made

    def _open(self, folder: Path, is_temporary: bool = False) -> None:
        self._asked = AskedModel(folder, ("regression",), self._options.spec.train.device, is_temporary)
        self.folder_, self.mix_weights_ = folder, self._asked.mix_weights()

    def _fitted(self) -> AskedModel:
        return check_fitted(self._asked, type(self).__name__)

    def __sklearn_clone__(self) -> Self:
        """Return one with the same options, not fitted; a fitted teacher stays the same."""
        return type(self)(**self._options.given)

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what this is."""
        from sklearn.utils import RegressorTags, Tags, TargetTags

        target = TargetTags(required=True)
        return Tags(estimator_type="regressor", target_tags=target, regressor_tags=RegressorTags())
