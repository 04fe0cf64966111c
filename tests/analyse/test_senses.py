"""Word senses: files as they come, the nearest use against a loop, the baseline by hand."""

from pathlib import Path

import pytest
import torch

from bermo.analyse.senses import cosines, f1, f1_ends, measure_senses, most_frequent, senses_section
from bermo.data.senses import choose_test, find_senses, read_semcor, read_test
from bermo.errors import BermoError
from bermo.vectors import Encoder, stream_vectors

MEMORY = [
    ("the cat sees a film", "1:01:00::"),
    ("a cat saw the dogs .", "1:02:00::"),
    ("bad cat", "1:02:00::"),
    ("the good cat saw films .", "1:02:00::"),
    ("a cat sees cats", "1:01:00::"),
]
TESTS = [("the cat sees a dog", "cat%1:01:00::"), ("good cat", "cat%1:02:00:: cat%1:09:00::")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["#doc\tsent\tterm_tokens\tlemma\tpos\tkey\tsynset"]
    for number, (text, key) in enumerate(MEMORY):
        for word in text.split():
            tag = key if word == "cat" else "-"
            lines.append(f"d\t{number}\t{word}\t{word}\tNN\t{tag}\t-")
    lines.append("d\t9\tgood_dog\tgood_dog\tNN\t1:05:00::\t-")
    (tmp_path / "semcor3.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "tests").mkdir()
    sentences, keys = "", ""
    for number, (text, key) in enumerate(TESTS):
        words = "".join(
            f'<instance id="s{number}" lemma="cat" pos="NOUN">cat</instance>'
            if word == "cat"
            else f'<wf lemma="x" pos="X">{word}</wf>'
            for word in text.split()
        )
        sentences += f'<sentence id="{number}">{words}</sentence>'
        keys += f"s{number} {key}\n"
    sentences += '<sentence id="9"><instance id="s9" lemma="dog" pos="NOUN">dog</instance></sentence>'
    (tmp_path / "tests" / "mine.data.xml").write_text(f"<corpus><text>{sentences}</text></corpus>")
    (tmp_path / "tests" / "mine.gold.key.txt").write_text(keys + "s9 dog%1:01:00::\n")
    return tmp_path


def test_the_files_are_read_as_they_come(folder: Path) -> None:
    files = find_senses(folder)
    memory, test = list(read_semcor(files.memory)), read_test(choose_test(files, "mine"))
    assert len(memory) == 6
    assert memory[0].tagged[0].keys == ("cat%1:01:00::",)
    assert memory[5].words == ("good", "dog")
    assert memory[5].tagged[0].end == 2
    assert test[1].tagged[0].keys == ("cat%1:02:00::", "cat%1:09:00::")
    assert test[0].tagged[0].word == ("cat", "noun")
    assert test[0].tagged[0].start == 1


def test_the_nearest_use_equals_a_loop_over_the_memory(folder: Path, mixed: Encoder) -> None:
    files = find_senses(folder)
    memory, test = list(read_semcor(files.memory)), read_test(choose_test(files, "mine"))
    result = measure_senses(mixed, memory, test, "mine", 60)
    assert result.names == ("0", "1", "2", "3", "mix", "last four")
    assert (result.num_words, result.answered) == (3, 2)
    for kind in range(6):
        right = 0
        for text, keys in TESTS:
            own = _vector(mixed, text, kind)
            nearest = max(
                MEMORY,
                key=lambda item: float(torch.cosine_similarity(own, _vector(mixed, item[0], kind), dim=0)),
            )
            right += f"cat%{nearest[1]}" in keys.split()
        assert result.f1[kind] == pytest.approx(f1(right, 2, 3))
    # The most frequent sense of cat is the second: one of two answers is right, of three words.
    assert most_frequent(memory)["cat", "noun"] == "cat%1:02:00::"
    assert result.baseline == pytest.approx(100 * 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert result.map is not None
    assert result.map.word == "cat"
    assert len(result.map.points) == 5
    said = senses_section({"tiny": result}).text
    assert "SemCor holds 2 of 3" in said
    assert "too few texts for an interval" in said


def test_the_interval_of_f1_is_over_sentences() -> None:
    right, sentences = [True, False, True, True, False, True], [0, 1, 2, 3, 4, 5]
    low, high = f1_ends(right, [True] * 6, sentences, [1] * 6) or (0, 0)
    assert 0 < low < f1(4, 6, 6) < high == 100
    few = f1_ends(right * 9, [True] * 54, range(54), [1] * 54) or (0, 0)
    assert (few[0] + few[1]) / 2 == pytest.approx(f1(36, 54, 54))
    assert f1_ends(right[:3], [True] * 3, [0, 1, 2], [1] * 3) is None


def _vector(encoder: Encoder, text: str, kind: int) -> torch.Tensor:
    batch = next(iter(stream_vectors(encoder, [text], with_mix=True, max_length=60)))
    position = 1 + text.split().index("cat")
    vectors = [hidden[0, position] for hidden in batch.vectors]
    return torch.cat(vectors[:4]) if kind == 5 else vectors[kind]


def test_cosines_of_four_layers_are_those_of_the_layers_side_by_side() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (
        torch.randn(7, 2, 5, generator=generator),
        torch.randn(7, 3, 5, generator=generator),
    )
    similarity = cosines(one, other, num_layers=6)
    side = [torch.cat(list(item[2:6]), dim=-1) for item in (one, other)]
    torch.testing.assert_close(
        similarity[7], torch.cosine_similarity(side[0][:, None], side[1][None], dim=-1)
    )
    torch.testing.assert_close(
        similarity[6], torch.cosine_similarity(one[6][:, None], other[6][None], dim=-1)
    )


def test_wrong_folders_and_files_are_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BermoError, match='Did you mean "mine"'):
        choose_test(find_senses(folder), "mime")
    with pytest.raises(BermoError, match="has no semcor"):
        find_senses(folder / "tests")
    with pytest.raises(BermoError, match="There is no folder"):
        find_senses(tmp_path / "nowhere")
    (folder / "semcor3.tsv").write_text("one\ttwo\n")
    with pytest.raises(BermoError, match="line 1: 2 columns"):
        list(read_semcor(folder / "semcor3.tsv"))
    (folder / "semcor3.tsv").write_bytes(b"# caf\xe9\n")
    with pytest.raises(BermoError, match="line 1: byte 0xe9 is not UTF-8"):
        list(read_semcor(folder / "semcor3.tsv"))
    (folder / "tests" / "mine.data.xml").write_text("<corpus>")
    with pytest.raises(BermoError, match="is not XML"):
        read_test(folder / "tests" / "mine.data.xml")
