"""What a task draws: a tree, and the words of the sentence."""

from typing import NamedTuple

from bermo.data.sentences import grammar
from bermo.data.sentences.grammar import Tree


class Drawn(NamedTuple):
    """A tree, and the words of the sentence; they are not the tree's where a task changes them."""

    tree: Tree
    words: list[str]


def as_drawn(tree: Tree) -> Drawn:
    """Return a tree with its own words."""
    return Drawn(tree, grammar.words(tree))
