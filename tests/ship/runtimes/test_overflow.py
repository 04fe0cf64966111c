"""Int8 products on x86 without VNNI: simulated in numpy, on the box's real weights, and refused where they
are wrong.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from transformers import AutoModel

from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.machine import Processor
from bermo.models.tasks import BermoForSequenceClassification
from bermo.ship.export import write
from bermo.ship.export.onnx import quiet, write_onnx
from bermo.ship.export.quantize import quantize_calibrated, quantize_dynamic
from bermo.ship.runtimes.overflow import (
    can_overflow,
    check_overflow,
    encode,
    int8_matrices,
    overflowing_matrices,
    safe_scales,
)
from scripts.make_box import FOLDER
from tests import tiny
from tests.ship.folders import make_model


def processor(architecture: str, *instructions: str) -> Processor:
    return Processor(
        name="a processor",
        architecture=architecture,
        system="Linux",
        cores=2,
        instructions=frozenset(instructions),
    )


OLD_X86 = processor("x86_64", "AVX2")
NEW_X86 = processor("x86_64", "AVX2", "VNNI")
ARM = processor("aarch64", "NEON", "dotprod")


def multiply_without_vnni(activations: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """uint8 (T, K) times int8 (K, N) as vpmaddubsw does: neighbours' products are added in 16 bits and
    saturate.
    """
    products = activations.astype(np.int64)[:, :, None] * codes.astype(np.int64)[None]
    if products.shape[1] % 2:
        products = np.pad(products, ((0, 0), (0, 1), (0, 0)))
    pairs = np.clip(products[:, 0::2] + products[:, 1::2], -(2**15), 2**15 - 1)
    return pairs.sum(axis=1)


def multiply_exactly(activations: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return activations.astype(np.int64) @ codes.astype(np.int64)


def worst_activations(codes: np.ndarray) -> np.ndarray:
    """For each column, 255 where its codes are positive, and 255 where they are negative."""
    return np.concatenate([255 * (codes > 0).T, 255 * (codes < 0).T]).astype(np.uint8)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of the encoder in the package with two labels, as an ONNX graph in fp32 and with signed
    int8 weights.
    """
    folder = tmp_path_factory.mktemp("box")
    torch.manual_seed(0)
    encoder = AutoModel.from_pretrained(FOLDER, num_hidden_layers=2)
    model = BermoForSequenceClassification.from_backbone(encoder, num_labels=2).eval()
    texts = ["the gates near the old house open", "a girl sings", "boys that saw the film laugh"]
    batch = load_tokenizer(FOLDER)(texts, padding=True, return_tensors="pt")
    write_onnx(model, dict(batch), folder / "graph.onnx")
    with quiet():
        quantize_dynamic(folder / "graph.onnx", folder / "model.onnx", "signed")
    return folder


def full_range_codes(weights: np.ndarray, largest: int) -> np.ndarray:
    """Codes as a plain quantiser makes them: the largest weight of each column gets the largest code."""
    scales = np.maximum(np.abs(weights).max(axis=0), 1e-12) / largest
    return np.rint(weights / scales).astype(np.int8)


def test_no_product_of_the_boxs_exported_graph_overflows_without_vnni(box: Path) -> None:
    matrices = int8_matrices(onnx.load(box / "model.onnx").graph)
    assert len(matrices) >= 12
    for item in matrices:
        codes = numpy_helper.to_array(item.stored)[:, :24]
        worst = worst_activations(codes)
        assert np.array_equal(multiply_without_vnni(worst, codes), multiply_exactly(worst, codes))
    assert overflowing_matrices(box / "model.onnx") == []


def matrices_of(box: Path) -> list[np.ndarray]:
    """The box's matrices in fp32 that the int8 graph holds as codes."""
    stored = {item.name: item for item in onnx.load(box / "graph.onnx").graph.initializer}
    names = [item.stored.name for item in int8_matrices(onnx.load(box / "model.onnx").graph)]
    return [numpy_helper.to_array(stored[name.removesuffix("_quantized")]) for name in names]


def test_full_8_bit_codes_of_the_box_can_overflow_and_7_bit_ones_cannot(box: Path) -> None:
    weights = matrices_of(box)
    assert all(can_overflow(full_range_codes(matrix, 127)) for matrix in weights)
    assert not any(can_overflow(full_range_codes(matrix, 64)) for matrix in weights)
    codes = full_range_codes(weights[0], 127)
    worst = worst_activations(codes)
    assert not np.array_equal(multiply_without_vnni(worst, codes), multiply_exactly(worst, codes))


def test_safe_scales_keep_more_than_half_of_what_the_eighth_bit_gives(box: Path) -> None:
    def error(scales: list[np.ndarray], largest: int) -> float:
        codes = [np.clip(np.rint(m / s), -largest, largest) for m, s in zip(weights, scales, strict=True)]
        return (
            sum(float(np.square(c * s - m).sum()) for c, s, m in zip(codes, scales, weights, strict=True))
            ** 0.5
        )

    weights = matrices_of(box)
    tops = [np.abs(matrix).max(axis=0) for matrix in weights]
    full, seven = error([top / 127 for top in tops], 127), error([top / 64 for top in tops], 64)
    safe = error([safe_scales(matrix) for matrix in weights], 127)
    assert full < safe < (full + seven) / 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.1, 30))
def test_safe_codes_multiply_exactly_with_any_activations(seed: int, rows: int, outlier: float) -> None:
    draw = np.random.default_rng(seed)
    weights = draw.normal(size=(rows, 3)).astype(np.float32)
    weights[0] *= outlier
    codes = encode(weights, safe_scales(weights))
    activations = np.concatenate(
        [worst_activations(codes), draw.integers(0, 256, (4, rows)).astype(np.uint8)]
    )
    assert not can_overflow(codes)
    assert np.array_equal(multiply_without_vnni(activations, codes), multiply_exactly(activations, codes))


def test_calibrated_graphs_are_safe_too_also_where_a_matrix_is_stored_transposed(tmp_path: Path) -> None:
    batch = tiny.make_batch("bert")
    write.write_onnx(make_model(), batch, tmp_path / "graph.onnx")
    with quiet():
        inputs = [{name: value.numpy() for name, value in batch.items()}]
        quantize_calibrated(tmp_path / "graph.onnx", tmp_path / "model.onnx", "signed", inputs)
    matrices = int8_matrices(onnx.load(tmp_path / "model.onnx").graph)
    assert {item.is_transposed for item in matrices} == {True, False}
    assert overflowing_matrices(tmp_path / "model.onnx") == []


@pytest.fixture
def unsafe(box: Path, tmp_path: Path) -> Path:
    """The same graph with full 8-bit codes in one matrix."""
    model = onnx.load(box / "model.onnx")
    item = int8_matrices(model.graph)[0].stored
    codes = numpy_helper.to_array(item).copy()
    codes[:2, 0] = 127
    item.CopyFrom(numpy_helper.from_array(codes, item.name))
    onnx.save(model, str(tmp_path / "model.onnx"))
    return tmp_path


@pytest.mark.parametrize("on", [NEW_X86, ARM])
def test_codes_that_overflow_are_accepted_where_the_processor_adds_in_32_bits(
    on: Processor, unsafe: Path
) -> None:
    check_overflow(unsafe, {"precision": "int8"}, on)


def test_codes_that_overflow_are_refused_without_vnni(unsafe: Path, box: Path) -> None:
    with pytest.raises(
        BermoError, match=r"overflow on a processor \(x86 without VNNI\).*Export the model again"
    ):
        check_overflow(unsafe, {"precision": "int8"}, OLD_X86)
    check_overflow(box, {"precision": "int8"}, OLD_X86)
    check_overflow(unsafe, {"precision": "fp32"}, OLD_X86)


def test_an_openvino_folder_is_judged_by_its_record(tmp_path: Path) -> None:
    check_overflow(tmp_path, {"precision": "int8", "details": {"is_safe_without_vnni": True}}, OLD_X86)
    with pytest.raises(BermoError, match="answers would be wrong"):
        check_overflow(tmp_path, {"precision": "int8"}, OLD_X86)
