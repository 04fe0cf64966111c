"""Training of matrices of low rank: from the encoder or a teacher's layers, saved in factors, and shipped."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from bermo.encoders.structure import structure_of
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.methods.student import student_from_teacher
from bermo.models.low_rank import factorise_
from bermo.models.tasks import BermoForSequenceClassification
from bermo.progress import Quiet
from bermo.runs.trained import open_trained
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.spec import Ranks
from bermo.spec import PruneSpec, RunSpec, replace_in
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box", "quick_traces")
PLAIN = replace_in(replace(TINY, prune=PruneSpec()), train={"epochs": 2})
LOW = replace_in(PLAIN, method={"low_rank": 8, "embedding_rank": 8})


def test_a_run_resumes_to_the_bit_and_saves_the_factors_alone(tmp_path: Path) -> None:
    saved = check_resumes_to_the_bit(LOW, tmp_path, step=2)
    assert {tensor.shape[0] for name, tensor in saved.items() if name.endswith(".down.weight")} == {8}
    assert not any(name.endswith("query.weight") for name in saved)
    finetune(PLAIN, tmp_path / "dense")
    sizes = [(tmp_path / name / "model" / "model.safetensors").stat().st_size for name in ("whole", "dense")]
    assert sizes[0] < 0.5 * sizes[1]


def test_a_student_of_a_teachers_layers_is_factorised_and_can_teach_in_turn(tmp_path: Path) -> None:
    finetune(PLAIN, tmp_path / "dense")
    taught = replace_in(LOW, distill={"teacher": str(tmp_path / "dense"), "student_layers": (1, 2)})
    finetune(taught, tmp_path / "low")
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "low" / "model")
    assert structure_of(model).embedding_rank == 8
    half = student_from_teacher(model, [2])
    assert structure_of(half).layers == structure_of(model).layers[1:]


def test_shrink_factorises_without_training_and_the_export_multiplies_twice(tmp_path: Path) -> None:
    finetune(PLAIN, tmp_path / "dense")
    result = make_small(
        tmp_path / "dense", tmp_path / "low", Quiet(), ranks=Ranks(low_rank=8, embedding_rank=8)
    )
    assert result.after.parameters < 0.5 * result.before.parameters
    assert result.after.heads == result.before.heads
    counts = []
    for name in ("dense", "low"):
        export(tmp_path / name, tmp_path / f"{name}-onnx", ExportSpec(to="onnx"))
        graph = onnx.load(tmp_path / f"{name}-onnx" / "model.onnx").graph
        counts.append(sum(node.op_type in ("MatMul", "Gemm") for node in graph.node))
    layers = len(structure_of(open_trained(tmp_path / "low").load_bermo_model()).layers)
    assert counts[1] == counts[0] + 6 * layers + 1


def test_int8_quantisers_sit_on_both_factors() -> None:
    from bermo.models.quantized import attach_quantizers_, int8_matrices

    model = make_model(layers=2)
    before = len(int8_matrices(model))
    factorise_(model, 4, None)
    assert len(int8_matrices(model)) == before + 12
    attach_quantizers_(model).set_(True)
    assert torch.isfinite(model(**tiny.make_batch("bert")).logits).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": {"low_rank": 1.5}}, "low-rank must be a whole number"),
        ({"method": {"low_rank": 8.0}, "train": {"together": 2}}, "together with matrices of low rank"),
        (
            {"method": {"low_rank": 8.0, "theseus": 1}, "distill": {"teacher": "runs/dense"}},
            "Leave --low-rank to a run after it",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(RunSpec(), **changes)))
