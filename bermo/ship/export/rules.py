"""onnxscript's rules of rewriting, tried only where they may apply.

It tries each of its 50 rules at every node of a graph, and a rule of several outputs lists the whole graph
before it looks at the node. Nearly all rules end in one kind of node, which is compared first here. The graph
is the same to the byte.
"""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def rules_where_they_may_apply() -> Iterator[None]:
    """Let onnxscript try a rule only at nodes of the kind that its pattern ends in.

    Another onnxscript, which has no such class, is left as it is.
    """
    try:
        rules: Any = importlib.import_module("onnxscript.rewriter._rewrite_rule").RewriteRule
        tried = rules.try_rewrite
    except (ImportError, AttributeError):
        yield
        return
    ends: dict[Any, str | None] = {}

    def try_rewrite(rule: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        if rule not in ends:
            ends[rule] = end_of(rule)
        may_apply = ends[rule] in (None, node.op_type)
        return tried(rule, model, graph, node, **options) if may_apply else None

    rules.try_rewrite = try_rewrite
    try:
        yield
    finally:
        rules.try_rewrite = tried


def end_of(rule: Any) -> str | None:
    """Return the kind of node that is compared with a rule's pattern first; none where any kind will do."""
    if type(getattr(rule, "_matcher", None)).__name__ != "SimplePatternMatcher":
        return None
    known = rule._target_pattern.output_nodes[0].op_identifier()
    return None if known is None else str(known[1])
