"""The generated sentences: labels read back from the tree, balance, seeds, splits, and no free lunch."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from bermo.data.sentences import (
    TASKS,
    Sentence,
    SentenceTask,
    contents,
    generate,
    lexicon,
    split,
    tasks,
    with_trees,
)
from bermo.data.sentences.drawn import Drawn
from bermo.data.sentences.grammar import Tree, spell, tags, words
from bermo.data.sentences.lexicon import Frame
from bermo.errors import BermoError

EVERY_TASK = pytest.mark.parametrize("task", sorted(TASKS))


def parts(tree: Tree, label: str) -> list[Tree]:
    """The children of a node whose label starts with `label`."""
    return [item for item in tree.children if isinstance(item, Tree) and item.label.startswith(label)]


def read_tense(tree: Tree, text: str) -> str:
    """Past if the first verb of the verb phrase of the topmost clause is VBD."""
    (clause,) = parts(tree, "S")
    (phrase,) = parts(clause, "VP")
    return "past" if parts(phrase, "V")[0].label == "VBD" else "present"


def head_number(phrase: Tree) -> str:
    (head,) = parts(phrase, "N")
    return {"NN": "singular", "NNS": "plural"}[head.label]


def read_subject(tree: Tree, text: str) -> str:
    return head_number(parts(parts(tree, "S")[0], "NP-SBJ")[0])


def read_object(tree: Tree, text: str) -> str:
    return head_number(parts(parts(parts(tree, "S")[0], "VP")[0], "NP-OBJ")[0])


def read_shift(tree: Tree, text: str) -> str:
    """Original if the text is what the tree says; shifted if exactly two neighbours changed places."""
    said, meant = text.lower().replace(",", " ,").rstrip(".").split(), words(tree)[:-1]
    wrong = [at for at, word in enumerate(meant) if said[at] != word.lower()]
    if not wrong:
        return "original"
    first, second = wrong
    assert second == first + 1
    assert (said[first], said[second]) == (meant[second].lower(), meant[first].lower())
    return "shifted"


def read_order(tree: Tree, text: str) -> str:
    """Original if every pronoun stands in the second clause, inverted if in the first."""
    first, second = parts(parts(tree, "S")[0], "S")
    has_pronoun = ["PRP" in tags(clause) for clause in (first, second)]
    assert sum(has_pronoun) == 1
    return "original" if has_pronoun[1] else "inverted"


def read_length(tree: Tree, text: str) -> str:
    """The range that holds the number of words and marks of the text."""
    count = len(text.replace(",", " ,").replace(".", " .").split())
    return next(name for name in TASKS["sentence-length"].labels if in_range(count, name))


def in_range(count: int, name: str) -> bool:
    low, high = map(int, name.split("-"))
    return low <= count <= high


def read_content(tree: Tree, text: str) -> str:
    """The one word of the list that is in the text."""
    listed = set(TASKS["word-content"].labels)
    (found,) = [word for word in text.lower().replace(",", "").rstrip(".").split() if word in listed]
    return found


def brackets(tree: Tree) -> str:
    inner = (item if isinstance(item, str) else brackets(item) for item in tree.children)
    return f"({tree.label} {' '.join(inner)})"


def read_depth(tree: Tree, text: str) -> str:
    """The deepest nesting of brackets when the tree is written out."""
    depth = deepest = 0
    for letter in brackets(tree):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        deepest = max(deepest, depth)
    return str(deepest)


def read_top(tree: Tree, text: str) -> str:
    (clause,) = parts(tree, "S")
    name = "_".join(item.label.replace("-SBJ", "") for item in clause.children)  # type: ignore[union-attr]
    return name if name in TASKS["top-constituents"].labels else "other"


def read_oddness(tree: Tree, text: str) -> str:
    """Original if some use of the main verb takes the kind of its object."""
    (phrase,) = parts(parts(tree, "S")[0], "VP")
    form = str(parts(phrase, "V")[0].children[0])
    head = str(parts(parts(phrase, "NP-OBJ")[0], "N")[0].children[0])
    kind = next(k for k, nouns in lexicon.NOUNS.items() for noun in nouns if head in noun)
    fits = any(form in frame.verb and kind in frame.objects for frame in lexicon.TRANSITIVE)
    return "original" if fits else "odd"


READERS: dict[str, Callable[[Tree, str], str]] = {
    "sentence-length": read_length,
    "word-content": read_content,
    "tree-depth": read_depth,
    "top-constituents": read_top,
    "odd-man-out": read_oddness,
    "tense": read_tense,
    "subject-number": read_subject,
    "object-number": read_object,
    "bigram-shift": read_shift,
    "coordination-inversion": read_order,
}


@EVERY_TASK
def test_the_label_read_from_the_tree_is_the_label_given(task: str) -> None:
    for item, tree in with_trees(task, 1500, seed=3):
        assert READERS[task](tree, item.text) == item.label, item


@EVERY_TASK
def test_classes_are_balanced_and_no_sentence_comes_twice(task: str) -> None:
    items = generate(task, 2001, seed=1)
    counts = Counter(item.label for item in items)
    assert max(counts.values()) - min(counts.values()) == 1
    assert set(counts) == set(TASKS[task].labels)
    assert len({item.text.lower() for item in items}) == 2001


def test_a_sentence_that_was_drawn_before_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(rng: Random, label: str) -> Drawn:
        found = [label, str(int(rng.random() * 20))]
        return Drawn(Tree("ROOT", tuple(found)), found)

    monkeypatch.setattr(tasks, "TASKS", {"few": SentenceTask("", ("a", "b"), draw)})
    train, valid = split("few", (20, 20), seed=1)
    assert len({item.text for item in train + valid}) == 40


@EVERY_TASK
def test_every_sentence_is_spelled_as_a_sentence(task: str) -> None:
    for item in generate(task, 500, seed=2):
        assert item.text[0].isupper() == TASKS[task].has_capital
        assert item.text.endswith(".")
        assert "  " not in item.text
        assert " ," not in item.text
        assert len(item.text.split()) < 60


def test_a_stands_before_consonants_and_an_before_vowels() -> None:
    tree = Tree("NP", (Tree("DT", ("a",)), Tree("JJ", ("old",)), Tree("NN", ("cat",))))
    assert spell(words(tree)) == "An old cat"
    for item in generate("object-number", 2000, seed=5):
        found = item.text.lower().split()
        for word, following in pairwise(found):
            if word in ("a", "an"):
                assert (word == "an") == (following[0] in "aeiou"), item.text


def test_verbs_of_the_present_agree_with_their_subjects() -> None:
    def check(node: Tree) -> None:
        subjects, phrases = parts(node, "NP-SBJ"), parts(node, "VP")
        if subjects and phrases:
            verb = parts(phrases[0], "V")[0].label
            is_plural = bool(parts(subjects[0], "NNS"))
            assert verb == "VBD" or (verb == "VBP") == is_plural
        for item in node.children:
            if isinstance(item, Tree):
                check(item)

    for _, tree in with_trees("tense", 1000, seed=7):
        check(tree)


def test_the_same_seed_gives_the_same_sentences_on_every_machine() -> None:
    assert generate("tense", 300, seed=4) == generate("tense", 300, seed=4)
    assert generate("tense", 300, seed=4) != generate("tense", 300, seed=5)
    # Golden: print(generate("tense", 1, seed=0)) makes it; a change of grammar or lexicon changes it.
    assert generate("tense", 1, seed=0) == [
        Sentence("A banker with Mei happily sliced your burger near some armchairs.", "past")
    ]


@EVERY_TASK
def test_splits_share_no_sentence_and_are_balanced_each(task: str) -> None:
    train, valid = split(task, (1200, 301), seed=6)
    assert not {item.text for item in train} & {item.text for item in valid}
    assert (len(train), len(valid)) == (1200, 301)
    counts = Counter(item.label for item in valid)
    assert max(counts.values()) - min(counts.values()) == 1
    assert train == generate(task, 1200, seed=6)


def test_twenty_thousand_sentences_take_seconds() -> None:
    start = time.process_time()
    generate("tense", 20_000, seed=8)
    assert time.process_time() - start < 8


def test_no_form_of_the_lexicon_is_ambiguous() -> None:
    owners: dict[str, set[str]] = {}
    for nouns in lexicon.NOUNS.values():
        for noun in nouns:
            owners.setdefault(noun.singular, set()).add("NN")
            owners.setdefault(noun.plural, set()).add("NNS")
    for frame in lexicon.TRANSITIVE + lexicon.INTRANSITIVE + lexicon.CLAUSAL:
        for tag, form in zip(("VBP", "VBZ", "VBD"), frame.verb, strict=True):
            owners.setdefault(form, set()).add(tag)
    for adjectives in lexicon.ADJECTIVES.values():
        for adjective in adjectives:
            owners.setdefault(adjective, set()).add("JJ")
    assert {word: kinds for word, kinds in owners.items() if len(kinds) > 1} == {}


def bag_of_words_accuracy(task: str, is_cased: bool) -> float:
    """Accuracy of the best linear rule (ridge, solved exactly) on which words occur, 8,000 sentences."""
    train, valid = split(task, (8000, 1000), seed=9)
    texts = [item.text if is_cased else item.text.lower() for item in train + valid]
    bags = [set(text.rstrip(".").replace(",", "").split()) for text in texts]
    index = {word: at for at, word in enumerate(sorted(set().union(*bags)))}
    features = np.zeros((len(bags), len(index)), dtype=np.float32)
    for row, bag in enumerate(bags):
        features[row, [index[word] for word in bag]] = 1.0
    is_first = np.array([item.label == TASKS[task].labels[0] for item in train + valid])
    seen, sign = features[:8000], np.where(is_first[:8000], 1.0, -1.0).astype(np.float32)
    weights = np.linalg.solve(seen.T @ seen + 5.0 * np.eye(len(index)), seen.T @ sign)
    return float(np.mean((features[8000:] @ weights > 0) == is_first[8000:]))


@pytest.mark.parametrize(
    ("task", "is_cased", "most"),
    [
        ("tense", False, 0.85),
        ("subject-number", False, 0.85),
        ("object-number", False, 0.85),
        ("bigram-shift", True, 0.56),
        ("odd-man-out", True, 0.56),
        ("coordination-inversion", True, 0.56),
    ],
)
def test_a_bag_of_words_does_not_solve_the_task(task: str, is_cased: bool, most: float) -> None:
    assert bag_of_words_accuracy(task, is_cased) <= most


def test_an_odd_word_is_as_frequent_as_a_sound_one() -> None:
    """Over verbs and over kinds of object, the odd table sums to what the sound one sums to."""
    pairs, sums = contents._odd_pairs()
    verbs: Counter[Frame] = Counter()
    kinds: Counter[str] = Counter()
    for (frame, kind), weight in zip(pairs, np.diff([0.0, *sums]), strict=True):
        assert kind not in frame.objects
        verbs[frame] += weight
        kinds[kind] += weight
    choosy = [f for f in lexicon.TRANSITIVE if len(f.objects) < len(lexicon.NOUNS)]
    for kind in lexicon.NOUNS:
        expected = sum(1 / len(f.objects) for f in choosy if kind in f.objects)
        assert kinds[kind] == pytest.approx(expected, rel=1e-5)
    assert set(verbs) == set(choosy)
    assert np.allclose(list(verbs.values()), 1, rtol=1e-5)


def test_length_hardly_tells_the_depth() -> None:
    """The best guess of the depth from the number of words alone stays near chance (20 %)."""
    by_length: dict[int, Counter[str]] = {}
    for item, tree in with_trees("tree-depth", 3000, seed=2):
        by_length.setdefault(len(words(tree)), Counter())[item.label] += 1
    assert sum(max(counts.values()) for counts in by_length.values()) / 3000 < 0.31


def test_an_unknown_task_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(BermoError, match=r'for "tence".+mean "tense"'):
        generate("tence", 10, seed=1)
    with pytest.raises(BermoError, match="0 or more, but got"):
        generate("tense", -1, seed=1)
