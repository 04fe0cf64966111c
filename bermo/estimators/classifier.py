"""A text classifier with the interface of scikit-learn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bermo.data.tasks import Kind
from bermo.estimators.options import read_options
from bermo.estimators.trained import AskedModel, check_fitted, read_saved, train_rows, trained_folder

TASK = "own/classification"
KINDS: tuple[Kind, ...] = ("classification", "multi-label")


class Classifier:
    """Tells classes of texts apart: fit, predict, predict_proba, score, save and load.

        classifier = bermo.Classifier("box", epochs=3).fit(texts, labels)
        classifier.predict(["a fine film"])

    Texts are a list, an array or a series; a pair of texts is a tuple. A frame, a `datasets.Dataset` or a
    dict of columns may hold texts and labels; their columns are known by their usual names, or named by the
    options `text` and `label`. Labels may be texts, numbers or bools, and answers are of the same type; where
    they are lists, a text has any number of them, which may be none.

    Every option of `bermo train` is a keyword argument, with _ for -, but for those that name files; `seed`
    is the one seed. The training is that of `bermo train` on a file with the same rows, to the bit. It is
    kept in the folder `out`, or in a temporary one that goes with the object; `verbose` shows its progress.

    Fitted, it has `classes_`, `mix_weights_` (the share of each layer), `result_` (scores and costs, by seed)
    and `folder_` (that of the run: for `bermo shrink`, `bermo export`, or as the `teacher` of another).

        >>> texts = [f"a {word} film, number {i}" for i in range(30) for word in ("good", "bad")]
        >>> classifier = bermo.Classifier("box", epochs=1).fit(texts, ["yes", "no"] * 30)
        >>> classifier.predict(["a good film"]).tolist()
        ['yes']
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
        """Train on texts with labels; the model of the best evaluation on `valid`, (texts, labels), is kept.

        Without `valid` a share of the rows is held out for it, as by `bermo train` (the option `split`).
        """
        trained = train_rows(self._options, texts, labels, valid)
        self.result_ = trained.result
        self._open(trained.folder, trained.classes, trained.is_temporary)
        return self

    def predict(self, texts: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each text; of several labels a list, the likeliest first."""
        asked = self._fitted()
        found = asked.ask(texts)
        if not asked.has_several:
            place = {name: index for index, name in enumerate(asked.labels)}
            answers: npt.NDArray[Any] = self.classes_[[place[answer["label"]] for answer in found]]
            return answers
        class_of = dict(zip(asked.labels, self.classes_.tolist(), strict=True))
        rows = np.empty(len(found), dtype=object)
        for at, answer in enumerate(found):  # lists of equal length would be taken for a matrix
            rows[at] = [class_of[name] for name in answer["labels"]]
        return rows

    def predict_proba(self, texts: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each class for each text, in the order of `classes_`.

        Those of classes sum to 1; each of several labels is a yes or no of its own.
        """
        return np.array([[*answer["probabilities"].values()] for answer in self._fitted().ask(texts)])

    def score(self, texts: Any, labels: Any = None) -> float:
        """Return the share of the texts whose likeliest class is their label, or all of whose labels are."""
        asked = self._fitted()
        wanted = asked.names_in(texts, labels)
        key = "labels" if asked.has_several else "label"
        given = [frozenset(np.atleast_1d(answer[key]).tolist()) for answer in asked.ask(texts)]
        return float(np.mean([a == b for a, b in zip(given, wanted, strict=True)]))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, which transformers and the verbs of bermo can open too."""
        self._fitted().save(folder, self._options.given, self.classes_.tolist())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open what `save` wrote, or any classifier in the folder of a run, of a model or of an export."""
        path = trained_folder(folder)
        saved = read_saved(path)
        made = cls(**saved.options)
        made._open(path, saved.classes)
        return made

    def _open(self, folder: Path, classes: Sequence[Any], is_temporary: bool = False) -> None:
        self._asked = AskedModel(folder, KINDS, self._options.spec.train.device, is_temporary)
        self.folder_, self.mix_weights_ = folder, self._asked.mix_weights()
        values = list(classes) or list(self._asked.labels)
        is_mixed = len({type(value) for value in values}) > 1
        self.classes_ = np.array(values, dtype=object if is_mixed else None)

    def _fitted(self) -> AskedModel:
        return check_fitted(self._asked, type(self).__name__)

    def __sklearn_clone__(self) -> Self:
        """Return one with the same options, not fitted; a fitted teacher stays the same."""
        return type(self)(**self._options.given)

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what this is."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        target = TargetTags(required=True)
        return Tags(estimator_type="classifier", target_tags=target, classifier_tags=ClassifierTags())
