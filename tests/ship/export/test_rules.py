"""Rules of rewriting that are left out at a node would not have matched it."""

import pytest

pytest.importorskip("onnxscript")

import onnx
import onnx_ir
from onnxscript import rewriter
from onnxscript.rewriter import _rewrite_rule

from bermo.ship.export.rules import end_of, rules_where_they_may_apply

GRAPH = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2, 3] x, float[3, 3] w) => (float[2, 3] y, float[3, 2] z, float[2, 3] cut)
<float one = {1.0}, float low = {0.0}, float high = {6.0}, int64[2] whole = {2, 3}, int64[1] six = {6},
 int64[1] start = {0}, int64[1] end = {9223372036854775807}, int64[1] axis = {1}, int64[1] step = {1}>
{
    a = Transpose<perm = [1, 0]>(x)
    b = Transpose<perm = [1, 0]>(a)
    c = Mul(one, b)
    d = Reshape(c, six)
    e = Reshape(d, whole)
    f = Min(e, high)
    limited = Max(f, low)
    h = Cast<to = 1>(limited)
    i = Identity(h)
    j = MatMul(i, w)
    cut = Slice(x, start, end, axis, step)
    y = Relu(j)
    z = Transpose<perm = [1, 0]>(y)
}
"""


def graph() -> onnx_ir.Model:
    return onnx_ir.from_proto(onnx.parser.parse_model(GRAPH))


def rewritten() -> bytes:
    model = rewriter.rewrite(graph())
    return onnx_ir.to_proto(model).SerializeToString()


def test_the_graph_is_the_same_to_the_byte() -> None:
    with rules_where_they_may_apply():
        found = rewritten()
    assert found == rewritten()
    assert len(onnx.load_from_string(found).graph.node) < len(graph().graph)


def test_a_rule_that_is_left_out_at_a_node_does_not_match_it() -> None:
    model = graph()
    tried = left_out = 0
    for rule in rewriter._DEFAULT_REWRITE_RULES:
        for node in model.graph:
            if end_of(rule) in (None, node.op_type):
                tried += 1
            else:
                left_out += 1
                assert not rule.match(model, model.graph, node)
    assert left_out > 5 * tried > 0


def test_the_rules_are_their_own_again_and_another_onnxscript_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = _rewrite_rule.RewriteRule.try_rewrite
    with rules_where_they_may_apply():
        assert _rewrite_rule.RewriteRule.try_rewrite is not own
    assert _rewrite_rule.RewriteRule.try_rewrite is own
    monkeypatch.delattr(_rewrite_rule, "RewriteRule")
    with rules_where_they_may_apply():
        pass
