"""Generated rows of every kind: labels that a second derivation agrees with, no row in both splits."""

import pytest

from bermo.data.generated import generate_rows
from bermo.data.load import load_task
from bermo.data.metrics import entity_scores
from bermo.data.rows import ChoiceRows, SpanRows, TaggedRows
from bermo.data.sentences import TASKS, split
from bermo.spec import DataSpec


def test_answers_stand_where_they_say_and_equal_the_tagged_arguments() -> None:
    tagged, _ = generate_rows("arguments", (200, 10), seed=3)
    spans, _ = generate_rows("answer", (200, 10), seed=3)
    assert isinstance(tagged, TaggedRows)
    assert isinstance(spans, SpanRows)
    for row in range(200):
        (text, start), role = spans.answers[row][0], spans.questions[row].split()[-1][:-1].upper()
        assert spans.contexts[row][start : start + len(text)] == text
        words = [
            word for word, tag in zip(tagged.words[row], tagged.tags[row], strict=True) if tag.endswith(role)
        ]
        assert " ".join(words).lower() == text.lower()


def test_each_tagged_sentence_has_one_subject_and_one_object() -> None:
    rows, _ = generate_rows("arguments", (100, 1), seed=0)
    assert isinstance(rows, TaggedRows)
    for tags in rows.tags:
        assert tags.count("B-SUBJECT") == tags.count("B-OBJECT") == 1
    assert entity_scores(rows.tags, rows.tags).f1 == 1.0


def test_the_right_ending_is_the_sentence_in_its_order() -> None:
    rows, _ = generate_rows("ending", (100, 1), seed=5)
    assert isinstance(rows, ChoiceRows)
    right = {s.text for s in split("coordination-inversion", (101,), 5)[0] if s.label == "original"}
    wrong = {s.text for s in split("coordination-inversion", (101,), 5)[0] if s.label == "inverted"}
    for pair, label in zip(rows.endings, rows.labels, strict=True):
        assert pair[int(label)] in right or pair[1 - int(label)] in wrong
    assert 40 <= list(rows.labels).count("0") <= 60


@pytest.mark.parametrize("name", [*TASKS, "arguments", "answer", "ending"])
def test_every_generated_task_loads_without_files(name: str) -> None:
    data = load_task(DataSpec(task=f"box/{name}", limit=60))
    assert (len(data.train), len(data.valid)) == (60, 60)
