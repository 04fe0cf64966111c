"""The cells of small_data.py: training, validation and test files, drawn from real datasets.

    python benchmarks/small_data_cells.py DATA CELLS [--choosing]

DATA holds the unpacked datasets trec, mr, sst2, cola, mrpc, rte, qnli, qqp_partial, mnli_dev_matched, stsb
and conll2003. CELLS gets one folder for each cell and sample: train, valid and test as .jsonl (text or text
and text2, label) or, for tags, as .txt. A sample of 200 or 500 rows is drawn three times, of MR, SST-2 and
CoLA ten times, since there the ways differ least; whole datasets are taken once. The rows that choose the
best evaluation (valid) and those that are reported (test) are never the same.
With `--choosing` samples, valid and test all are training rows: there defaults may be chosen by the test rows
without looking at those that are reported.
"""

import argparse
import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path

SAMPLE, DRAWS, MANY_DRAWS, NUM_VALID, NUM_HELD = 200, range(1, 4), range(1, 11), 200, 1500
Row = dict[str, object]
# Task: the files of its training and its held-out rows, the text columns, the label column. A column is a
# name, or a number where the file has no header; without held-out files the rows are divided.
TASKS: dict[str, tuple[str, str | None, tuple[str | int, ...], str | int]] = {
    "trec": ("trec/train.tsv", "trec/test.tsv", ("text",), "label"),
    "mr": ("mr/train.tsv", "mr/dev.tsv", ("text",), "label"),
    "sst2": ("sst2/train.tsv", "sst2/dev.tsv", ("sentence",), "label"),
    "cola": ("cola/train.tsv", "cola/dev.tsv", (3,), 1),
    "mrpc": (
        "mrpc/msr_paraphrase_train.txt",
        "mrpc/msr_paraphrase_test.txt",
        ("#1 String", "#2 String"),
        "Quality",
    ),
    "rte": ("rte/train.tsv", "rte/dev.tsv", ("sentence1", "sentence2"), "label"),
    "qnli": ("qnli/dev.tsv", None, ("question", "sentence"), "label"),
    "qqp": ("qqp_partial/qqp_glue_train_part.tsv", None, ("question1", "question2"), "is_duplicate"),
    "mnli": ("mnli_dev_matched/dev_matched.tsv", None, ("premise", "hypothesis"), "gold_label"),
    "stsb": ("stsb/sts-train.tsv", "stsb/sts-dev.tsv", (5, 6), 4),
}
WHOLE = ("trec", "mr")
CLOSE = ("mr", "sst2", "cola")


def read(path: Path, text: tuple[str | int, ...], label: str | int) -> list[Row]:
    """Return the rows of a tab-separated file; lines that lack a column are left out."""
    lines = csv.reader(path.open(encoding="utf-8-sig"), delimiter="\t", quoting=csv.QUOTE_NONE)
    names: list[str] = next(lines) if isinstance(label, str) else []
    columns = [names.index(name) if isinstance(name, str) else name for name in (*text, label)]
    cells = [[line[column].strip() for column in columns] for line in lines if len(line) > max(columns)]
    keys = ("text", "text2")[: len(text)]
    rows: list[Row] = []
    for *texts, answer in cells:
        if all(texts) and answer:
            value = float(answer) if path.name.startswith("sts-") else answer
            rows.append({**dict(zip(keys, texts, strict=True)), "label": value})
    return rows


def read_tagged(path: Path) -> list[str]:
    """Return the sentences of a CoNLL file, each as its lines."""
    sentences = path.read_text(encoding="utf-8").strip().split("\n\n")
    return [sentence for sentence in sentences if not sentence.startswith("-DOCSTART-")]


def divide(rows: list, rng: random.Random) -> tuple[list, list]:
    """Return the rows that choose the best evaluation and those that are reported."""
    rows = rng.sample(rows, min(len(rows), NUM_HELD))
    num_valid = min(NUM_VALID, len(rows) // 3)
    return rows[:num_valid], rows[num_valid:]


def apart(train: list, rng: random.Random) -> tuple[list, list]:
    """Divide training rows into those that samples are drawn from and those that are held out."""
    shuffled = rng.sample(train, len(train))
    num_held = min(NUM_HELD, len(train) - 2 * SAMPLE)
    return shuffled[num_held:], shuffled[:num_held]


def cells(data: Path, is_choosing: bool = False) -> Iterator[tuple[str, list, list, list]]:
    """Yield (name, training, validation, test rows) of every cell."""
    for task, (train_file, held_file, text, label) in TASKS.items():
        train = read(data / train_file, text, label)
        held = read(data / held_file, text, label) if held_file is not None else []
        rng = random.Random(f"{task}-held")
        if task not in WHOLE:
            # A small test set is filled up with training rows, which no sample is drawn from then.
            rng.shuffle(train)
            missing = max(0, NUM_HELD - len(held))
            held, train = held + train[:missing], train[missing:]
        if is_choosing:
            train, held = apart(train, rng)
        valid, test = divide(held, rng)
        for draw in MANY_DRAWS if task in CLOSE else DRAWS:
            yield (
                f"{task}-{SAMPLE}/{draw}",
                random.Random(f"{task}-{draw}").sample(train, SAMPLE),
                valid,
                test,
            )
        if task == "trec":
            yield "trec-500/1", train[:500], valid, test
            for draw in DRAWS[1:]:
                yield f"trec-500/{draw}", random.Random(f"trec-500-{draw}").sample(train, 500), valid, test
        if task in WHOLE:
            yield f"{task}/1", train, valid, test
    folder = data / "conll2003"
    tagged = read_tagged(folder / "train.txt")
    rng = random.Random("conll-held")
    held = read_tagged(folder / "valid.txt")
    if is_choosing:
        tagged, held = apart(tagged, rng)
    valid, test = divide(held, rng)
    for draw in DRAWS:
        yield f"conll-{SAMPLE}/{draw}", random.Random(f"conll-{draw}").sample(tagged, SAMPLE), valid, test
    yield "conll/1", tagged, valid, test


def write(folder: Path, name: str, rows: list) -> None:
    """Write one file of a cell: JSON lines, or sentences of tagged words."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(rows[0], str):
        (folder / f"{name}.txt").write_text("\n\n".join(rows) + "\n", encoding="utf-8")
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--choosing", action="store_true")
    options = parser.parse_args()
    for name, train, valid, test in cells(options.data, options.choosing):
        for split, rows in (("train", train), ("valid", valid), ("test", test)):
            write(options.cells / name, split, rows)
        print(f"{name}: {len(train):,} training, {len(valid):,} validation, {len(test):,} test rows")


if __name__ == "__main__":
    main()
