"""The table of words in four bits: the numbers of a slow loop, read by both runtimes, half of the room."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.tasks import BermoForSequenceClassification
from bermo.ship.export import openvino_int8
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.export.word_table import GROUP, NARROWED, encode, pack
from bermo.ship.runtimes.forms import FormName
from bermo.ship.runtimes.openvino import load_openvino
from tests import tiny
from tests.ship.folders import make_model, save, write_rows

NUM_WORDS = 2000


def test_codes_are_those_of_a_slow_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bermo.ship.export.word_table.ROWS_AT_ONCE", 4)
    table = np.random.default_rng(0).normal(size=(6, 2 * GROUP)).astype(np.float32)
    table[1] = 0
    table[2, :GROUP] = 3.5
    table[3] = np.abs(table[3])
    decoded = encode(table).decode()
    assert not decoded[1].any()
    for row in range(len(table)):
        for start in range(0, 2 * GROUP, GROUP):
            group = table[row, start : start + GROUP]
            low, high = min(group.min(), 0.0), max(group.max(), 0.0)
            tried = []
            for share in NARROWED:
                step = float(np.float16(max((high - low) * share / 15, np.finfo(np.float16).tiny)))
                zero = min(max(round(-low * share / step), 0), 15)
                codes = [min(max(round(float(value) / step) + zero, 0), 15) for value in group]
                tried.append([(code - zero) * step for code in codes])
            errors = [float(np.square(np.array(values) - group).sum()) for values in tried]
            ours = float(np.square(decoded[row, start : start + GROUP] - group).sum())
            assert ours == pytest.approx(min(errors), rel=1e-4, abs=1e-9)


def test_two_numbers_share_a_byte_the_first_in_its_lower_half() -> None:
    assert pack(np.array([[1, 2, 15]], dtype=np.uint8)).tolist() == [0x21, 0x0F]


def make_words(family: str) -> BermoPreTrainedModel:
    """A tiny model with so many words that four bits are worth while."""
    torch.manual_seed(0)
    config = tiny.make_config(family)
    config.vocab_size, config.hidden_size, config.num_hidden_layers = NUM_WORDS, 2 * GROUP, 1
    if family == "albert":
        config.embedding_size = GROUP
    return BermoForSequenceClassification.from_backbone(config, num_labels=2).eval()


@pytest.mark.parametrize(
    ("family", "to", "has_nncf"),
    [
        ("bert", "onnx-int8-signed", True),
        ("albert", "onnx-int8-signed", True),
        ("bert", "openvino-int8", True),
        ("mpnet", "openvino-int8", False),
    ],
)
def test_an_export_reads_the_decoded_table_and_takes_half_of_its_room(
    family: str, to: FormName, has_nncf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_nncf:
        monkeypatch.setattr(openvino_int8, "has_nncf", lambda: False)
    model, rows = make_words(family), tmp_path / "dev.tsv"
    table = encoder_of(model).get_input_embeddings().weight.detach().numpy()
    save(model, tmp_path / "model")
    write_rows(rows)
    sizes = {}
    for words in ("int8", "int4"):
        spec = ExportSpec(to=to, words=words, data=rows, calibrate=rows, max_loss=100.0)
        made = export(tmp_path / "model", tmp_path / words, spec)
        sizes[words] = made.num_bytes
        assert made.details["words"] == words
    ids = np.arange(6).reshape(2, 3) * 300
    read = looked_up_by_onnx if to.startswith("onnx") else looked_up_by_openvino
    # onnxruntime multiplies in half precision.
    np.testing.assert_allclose(
        read(tmp_path / "int4", ids, table.shape[1]), encode(table).decode()[ids], rtol=1e-3
    )
    width = table.shape[1]
    saved = NUM_WORDS * (width + 4 - width / 2 - 2.5 * width / GROUP)
    assert sizes["int8"] - sizes["int4"] == pytest.approx(saved, rel=0.1)


def looked_up_by_onnx(folder: Path, ids: np.ndarray, width: int) -> np.ndarray:
    """Return the vectors that the graph reads for these words."""
    import onnx
    import onnxruntime

    model = onnx.load(str(folder / "model.onnx"))
    node = next(node for node in model.graph.node if node.op_type == "GatherBlockQuantized")
    only = onnx.helper.make_graph(
        [node],
        "words",
        [onnx.helper.make_tensor_value_info(node.input[1], onnx.TensorProto.INT64, [None, None])],
        [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT16, [None, None, width])],
        [item for item in model.graph.initializer if item.name in node.input],
    )
    alone = onnx.helper.make_model(only, opset_imports=model.opset_import, ir_version=model.ir_version)
    session = onnxruntime.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {node.input[1]: ids.astype(np.int64)})[0], dtype=np.float32)


def looked_up_by_openvino(folder: Path, ids: np.ndarray, width: int) -> np.ndarray:
    """Return the vectors that the model reads for these words."""
    openvino = load_openvino()
    core = openvino.Core()
    model = core.read_model(str(folder / "model.xml"))
    lookup = next(
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Gather" and node.input_value(0).get_partial_shape().is_static
        if list(node.input_value(0).get_shape()) == [NUM_WORDS, width]
    )
    model.add_outputs(lookup.output(0))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    inputs = {item.get_any_name(): np.ones_like(ids) for item in compiled.inputs} | {"input_ids": ids}
    return np.asarray(list(compiled(inputs).values())[-1])


def test_a_model_with_few_words_is_refused(tmp_path: Path) -> None:
    save(make_model(), tmp_path / "model")
    with pytest.raises(BermoError, match="no table of 1,024 words or more"):
        export(tmp_path / "model", tmp_path / "out", ExportSpec(to="onnx-int8", words="int4"))
    assert not (tmp_path / "out").exists()
