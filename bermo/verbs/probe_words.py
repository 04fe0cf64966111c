"""bermo probe --words: the tasks of words of the named files, one after the other, into a folder."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bermo.methods.probing.spec import ProbeSpec
from bermo.printing import say, wrapped
from bermo.verbs.importing import importing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bermo.data.word_tasks import WordSource
    from bermo.methods.probing.word_rows import ReadSource
    from bermo.progress import Display
    from bermo.vectors import Encoder


class _Vectors:
    """The vectors of a source's words, read when a task first needs them, once for all its tasks."""

    def __init__(
        self,
        encoder: "Encoder",
        source: "WordSource",
        names: "Sequence[str]",
        spec: ProbeSpec,
        display: "Display",
    ) -> None:
        self.encoder, self.source, self.names, self.spec, self.display = encoder, source, names, spec, display

    @cached_property
    def read(self) -> "ReadSource":
        from bermo.methods.probing.word_rows import read_source

        return read_source(self.encoder, self.source, self.names, self.spec, self.display)


def run_words(
    *,
    model: str,
    paths: tuple[Path, ...],
    tasks: str,
    limit: int | None,
    lowercase: Literal["off"] | None,
    spec: ProbeSpec,
    out: Path,
    display: "Display",
) -> int:
    """Probe the tasks of words, write each as soon as it is done, and the page at the end."""
    with importing("training"):
        from bermo.data.rows import TextRows
        from bermo.data.word_tasks import TREE, choose_word_tasks, open_source, read_word_task
        from bermo.figures.data import write_findings
        from bermo.methods.probing.frozen import check_text, claim_folder, layer_names
        from bermo.methods.probing.results import read_probed, write_probed
        from bermo.methods.probing.trees import (
            check_trees,
            probe_trees,
            read_trees,
            tree_digest,
            write_trees,
        )
        from bermo.methods.probing.words import WordProbed, probe_words, word_digest
        from bermo.report.probe_table import print_table
        from bermo.report.tree_probes import tree_findings, tree_table, tree_verdict
        from bermo.report.word_probes import order_verdict, word_findings, word_table
        from bermo.vectors import load_encoder

    sources = [open_source(path.expanduser(), limit) for path in paths]
    wanted = choose_word_tasks(tasks, sources)
    chosen = [(task, source) for task, source in wanted if task != TREE]
    trees = next((source for task, source in wanted if task == TREE), None)
    if trees is not None:
        check_trees(trees)
    data = {task: read_word_task(task, source) for task, source in chosen}
    encoder = load_encoder(model, lowercase=lowercase)
    names = layer_names(encoder, spec)
    for source in sources:
        check_text(encoder, TextRows([" ".join(words) for words in source.words[0]]), spec)
    asked = {
        "model": encoder.fingerprint,
        "words": [path.name for path in paths],
        "limit": limit,
        "probe": spec.probe,
        "pieces": spec.pieces,
        "rank": spec.rank,
        "layers": "all" if spec.layers is None else ",".join(map(str, spec.layers)),
        "controls": spec.controls,
        "precision": spec.precision,
    }
    claim_folder(out, asked)
    proper = [name for name in names if name.isdigit()]
    untrained = load_encoder(model, untrained_seed=1, lowercase=lowercase) if spec.controls else None
    vectors = {id(source): _Vectors(encoder, source, names, spec, display) for source in sources}
    blank = {
        id(source): _Vectors(untrained, source, proper, spec, display)
        for source in sources
        if untrained is not None
    }
    results: list[WordProbed] = []
    facts = {
        "model": encoder.name,
        "data": ", ".join(map(str, paths)),
        "layers": str(encoder.num_layers),
        "probe": spec.probe,
        "a word's vector": "the mean of its pieces" if spec.pieces == "mean" else "its first piece",
    }
    for task, source in chosen:
        path = out / f"{task}.json"
        probed = read_probed(path, WordProbed, word_digest(data[task]))
        if probed is None:
            display.tell(f"{task}: {'; '.join(source.notes)}")
            read = vectors[id(source)].read
            control = blank[id(source)].read if blank else None
            probed = probe_words(read, control, data[task], names, spec, display)
            probed = replace(probed, source="; ".join(source.notes))
            write_probed(path, probed)
        results.append(probed)
    found = [word_findings(results, facts)] if results else []
    if results:
        print_table(word_table(results))
        say(f"\n{wrapped(order_verdict(results))}")
    if trees is not None:
        path = out / f"{TREE}.json"
        known = read_trees(path, tree_digest(trees))
        if known is None:
            display.tell(f"{TREE}: {'; '.join(trees.notes)}")
            control = blank[id(trees)].read if blank else None
            known = probe_trees(vectors[id(trees)].read, control, trees, names, spec, display)
            known = replace(known, source="; ".join(trees.notes))
            write_trees(path, known)
        found.append(tree_findings(known, facts))
        print_table(tree_table(known))
        say(f"\n{wrapped(tree_verdict(known))}")
    whole = replace(found[0], sections=tuple(section for item in found for section in item.sections))
    write_findings(out / "figures.json", whole)
    say(f"The figures are in {out}/figures.json")
    return 0
