"""Nodes of an ONNX graph written in another way where OpenVINO's ARM plug-in (2026.4) computes them wrongly.

    Cast(Unsqueeze(mask)) to float   Unsqueeze(Cast(mask))       an integer that is cast in the same step as
    it is
                                                                 multiplied by broadcasting gives wrong
                                                                 products
    Cast of a float to an integer    Cast(sign(x) · ⌊|x|⌋)       after a chain of other nodes (log, div,
    mul) the
                                                                 plug-in rounds where ONNX drops the fraction

Both say the same, to the bit, on every runtime. MobileBERT and DeBERTa need the first, MPNet's buckets of
distances the second.
"""

from pathlib import Path
from typing import Any


def avoid_wrong_kernels(graph: Path) -> None:
    """Rewrite a graph's file in place."""
    import onnx

    model = onnx.load(str(graph))
    avoid_wrong_kernels_(model)
    onnx.save(model, str(graph))


def avoid_wrong_kernels_(model: Any) -> None:
    """Rewrite the casts of a loaded graph."""
    makers = {output: node for node in model.graph.node for output in node.output}
    types = _element_types(model)
    nodes: list[Any] = []
    for node in model.graph.node:
        if node.op_type != "Cast":
            nodes.append(node)
            continue
        maker = makers.get(node.input[0])
        if _is_float(_target(node)) and maker is not None and maker.op_type == "Unsqueeze":
            nodes += _cast_first(node, maker)
        elif not _is_float(_target(node)) and _is_float(types.get(node.input[0])):
            nodes += _truncated(node)
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _cast_first(cast: Any, unsqueeze: Any) -> list[Any]:
    from onnx import helper

    out = cast.output[0]
    return [
        helper.make_node(
            "Cast", [unsqueeze.input[0]], [f"{out}.cast"], f"{cast.name}.cast", to=_target(cast)
        ),
        helper.make_node("Unsqueeze", [f"{out}.cast", unsqueeze.input[1]], [out], cast.name),
    ]


def _truncated(cast: Any) -> list[Any]:
    from onnx import helper

    value, out = cast.input[0], cast.output[0]
    return [
        helper.make_node("Sign", [value], [f"{out}.sign"], f"{cast.name}.sign"),
        helper.make_node("Abs", [value], [f"{out}.abs"], f"{cast.name}.abs"),
        helper.make_node("Floor", [f"{out}.abs"], [f"{out}.floor"], f"{cast.name}.floor"),
        helper.make_node("Mul", [f"{out}.sign", f"{out}.floor"], [f"{out}.whole"], f"{cast.name}.whole"),
        helper.make_node("Cast", [f"{out}.whole"], [out], cast.name, to=_target(cast)),
    ]


def _target(cast: Any) -> int:
    return int(next(attribute.i for attribute in cast.attribute if attribute.name == "to"))


def _is_float(kind: int | None) -> bool:
    from onnx import TensorProto

    return kind == TensorProto.FLOAT


def _element_types(model: Any) -> dict[str, int]:
    """Return the element type of every value that can be worked out."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    known = {item.name: item.type.tensor_type.elem_type for item in (*graph.value_info, *graph.input)}
    return known | {item.name: item.data_type for item in graph.initializer}
