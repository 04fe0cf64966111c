"""The header of a model card: the facts that the model hub reads, as YAML that it accepts.

A fact that we do not know is left out: a wrong licence or base model would be worse than none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

PIPELINES: Mapping[str, str] = {
    "BermoModel": "feature-extraction",
    "BermoForSequenceClassification": "text-classification",
    "BermoForTokenClassification": "token-classification",
    "BermoForQuestionAnswering": "question-answering",
    "BermoForMultipleChoice": "multiple-choice",
    "BermoForMaskedLM": "fill-mask",
    "BermoForSentenceEmbedding": "sentence-similarity",
}
# The hub's names of what our metrics are called otherwise.
HUB_METRICS: Mapping[str, str] = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
}
BOX = "box"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A score in percent on the validation rows of a task."""

    task: str
    metric: str
    value: float


def with_header(
    body: str,
    *,
    title: str,
    pipeline: str | None = None,
    base: str | None = None,
    dataset: str | None = None,
    evaluated: Sequence[Evaluated] = (),
) -> str:
    """Return a model card: the header, and the text below it. `base` is an encoder's name, or "box"."""
    is_box = base == BOX
    results = [_result(item, pipeline or "other") for item in evaluated]
    data = ModelCardData(
        library_name="sentence-transformers" if pipeline == "sentence-similarity" else "transformers",
        language="en" if is_box else None,
        license="cc-by-sa-3.0" if is_box else None,
        base_model=base if is_on_hub(base) else None,
        datasets=[dataset] if dataset is not None and is_on_hub(dataset) else None,
        metrics=sorted({result.metric_type for result in results}) or None,
        pipeline_tag=pipeline,
        tags=["bermo"],
        model_name=title if results else None,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---\n\n{body}"


def is_on_hub(name: str | None) -> bool:
    """Tell whether a name can be one on the hub: owner/name. A bare name may be that of a folder."""
    try:
        validate_repo_id(name or "")
    except HFValidationError:
        return False
    return "/" in (name or "")


def _result(evaluated: Evaluated, pipeline: str) -> EvalResult:
    return EvalResult(
        task_type=pipeline,
        dataset_type=evaluated.task,
        dataset_name=evaluated.task,
        dataset_split="validation",
        metric_type=HUB_METRICS.get(evaluated.metric, evaluated.metric),
        metric_name=evaluated.metric,
        metric_value=round(evaluated.value, 4),
    )
