"""The measurements of an analysis: what each needs, how it is made, what it draws; users name groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bermo.analyse import between, head_figures, heads, layer_figures, layers, tuned
from bermo.analyse.attention import Advance, AttentionFacts, attention_section, measure_attention
from bermo.analyse.attribution import TEXTS, Attribution, attribution_section, measure_attribution
from bermo.analyse.effective import LENGTHS, EffectiveFacts, effective_section, measure_effective
from bermo.analyse.effects import Effects, measure_effects
from bermo.analyse.fixed_patterns import FixedFacts, fixed_patterns_section, measure_fixed_patterns
from bermo.analyse.geometry import MAX_WORDS, MIN_USES, Geometry, measure_geometry
from bermo.analyse.geometry_figures import geometry_section
from bermo.analyse.identity import Identity, identity_section, measure_identity
from bermo.analyse.knowledge import Knowledge, knowledge_section, measure_knowledge, reasoning_section
from bermo.analyse.labelled import Labelled
from bermo.analyse.maps import (
    SHOWN_LAYERS,
    WHOLE,
    LayerMap,
    map_section,
    measure_map,
    sense_points,
    text_points,
    word_points,
)
from bermo.analyse.measures import Measure
from bermo.analyse.numbers import Numbers, measure_numbers, numbers_section
from bermo.analyse.order import Order, measure_order, order_section
from bermo.analyse.relations import RelationFacts, measure_relations, relations_section
from bermo.analyse.senses import Senses, measure_senses, senses_section
from bermo.analyse.sentence import SentenceFacts, measure_sentences
from bermo.analyse.sentence_figures import sentence_section
from bermo.analyse.subject import Subject, num_places
from bermo.analyse.words import frequent_words, has_mix, layer_names, word_keys
from bermo.data.pairs import Pair, draw_pairs, read_pairs
from bermo.data.reasoning import KINDS as REASONING_KINDS
from bermo.data.reasoning import draw_reasoning
from bermo.data.senses import choose_test, find_senses, read_semcor, read_test
from bermo.encoders.attention import heads_of_layers
from bermo.figures.data import Section
from bermo.vectors import Encoder, stream_vectors

Need = Literal[
    "texts",
    "labels",
    "senses",
    "attention",
    "two",
    "sentences",
    "base",
    "map",
    "matrices",
    "word vectors",
    "trees",
]
PAIRS, REASONING = 100, 60


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measure: its group, the facts it gives, what it needs, how long it is, and how it is drawn."""

    group: Measure
    kind: type
    measure: Callable[[Subject, Advance], Any]
    draw: Callable[[Mapping[str, Any]], Section]
    total: Callable[[Subject], int] = lambda subject: 1
    needs: tuple[Need, ...] = ("texts",)


def _geometry(subject: Subject, advance: Advance) -> Geometry:
    encoder, texts, longest = subject.encoder, subject.request.texts, subject.longest
    keys = word_keys(encoder.tokenizer, texts, longest)
    chosen = frequent_words(encoder.tokenizer, keys, MIN_USES, MAX_WORDS)

    def counted() -> Any:
        for batch in stream_vectors(encoder, texts, with_mix=has_mix(encoder), max_length=longest):
            yield batch
            advance(len(batch.rows))

    return measure_geometry(counted(), layer_names(encoder), chosen)


def _senses(subject: Subject, advance: Advance) -> Senses:
    request = subject.request
    files = find_senses(Path(str(request.senses)))
    test = read_test(choose_test(files, request.test))
    memory = list(read_semcor(files.memory))
    return measure_senses(subject.encoder, memory, test, request.test, subject.longest, advance)


def _pairs(subject: Subject) -> list[Pair]:
    given = subject.request.pairs
    return draw_pairs(PAIRS) if given is None else read_pairs(Path(given))


def _knowledge(subject: Subject, advance: Advance) -> Knowledge:
    return measure_knowledge(subject.encoder, subject.source, _pairs(subject), advance)


def _sentences(subject: Subject, advance: Advance) -> SentenceFacts:
    request = subject.request
    return measure_sentences(
        subject.encoder,
        subject.answerer,
        request.sentences,
        longest=subject.longest,
        heads=request.heads,
        corpus=request.corpus,
        words=request.words,
        layer=request.layer,
        advance=advance,
    )


def _reasoning(subject: Subject, advance: Advance) -> Knowledge:
    return measure_knowledge(subject.encoder, subject.source, draw_reasoning(REASONING), advance)


def _map(subject: Subject, advance: Advance) -> LayerMap:
    """Draw whole texts by label, words by sense where senses are given, or words by themselves."""
    request, encoder, longest = subject.request, subject.encoder, subject.longest
    if request.map == (WHOLE,):
        points = text_points(encoder, request.texts, subject.labels_of_texts(), longest)
    elif request.senses is not None:
        sentences = list(read_semcor(find_senses(Path(request.senses)).memory))
        points = sense_points(encoder, sentences, request.map, longest)
    else:
        points = word_points(encoder, request.texts, request.map, longest)
    return measure_map(encoder, list(points), advance)


def _between(subject: Subject, advance: Advance) -> between.Between:
    assert subject.first is not None, "only models after the first are compared with it"
    texts = subject.request.texts
    return between.measure_between(subject.first.encoder, subject.encoder, texts, subject.longest)


def _on_texts(
    measure: Callable[[Encoder, Sequence[str], int, Advance], Any],
) -> Callable[[Subject, Advance], Any]:
    def run(subject: Subject, advance: Advance) -> Any:
        return measure(subject.encoder, subject.request.texts, subject.longest, advance)

    return run


def _on_labels(measure: Callable[[Labelled, Advance], Any]) -> Callable[[Subject, Advance], Any]:
    def run(subject: Subject, advance: Advance) -> Any:
        return measure(subject.labelled, advance)

    return run


def _num_texts(subject: Subject) -> int:
    return len(subject.request.texts)


def _all_heads(subject: Subject) -> int:
    return sum(heads_of_layers(subject.encoder.backbone))


def _depth(subject: Subject) -> int:
    return subject.encoder.num_layers - 1


_of_attention = partial(Measurement, group="attention", total=_num_texts, needs=("texts", "attention"))
_labelled_heads = partial(Measurement, group="heads", needs=("labels", "attention"))
_scan = partial(_labelled_heads, kind=heads.Scan, total=_all_heads)
PARTS: Mapping[str, Measurement] = {
    "geometry": Measurement(
        group="geometry",
        kind=Geometry,
        measure=_geometry,
        draw=geometry_section,
        total=_num_texts,
    ),
    "senses": Measurement(
        group="senses",
        kind=Senses,
        measure=_senses,
        draw=senses_section,
        needs=("senses",),
        total=lambda subject: sum(
            1 for _ in read_semcor(find_senses(Path(str(subject.request.senses))).memory)
        ),
    ),
    "identity": Measurement(
        group="identity",
        kind=Identity,
        measure=_on_texts(measure_identity),
        draw=identity_section,
        total=_num_texts,
    ),
    "attribution": Measurement(
        group="identity",
        kind=Attribution,
        draw=attribution_section,
        measure=lambda subject, advance: measure_attribution(subject.encoder, subject.request.texts, advance),
        needs=("texts", "word vectors"),
        total=lambda subject: min(TEXTS, len(subject.request.texts)),
    ),
    "attention": _of_attention(
        kind=AttentionFacts, measure=_on_texts(measure_attention), draw=attention_section
    ),
    "effective": Measurement(
        group="attention",
        kind=EffectiveFacts,
        draw=effective_section,
        needs=("texts", "attention"),
        measure=lambda subject, advance: measure_effective(
            subject.encoder, subject.request.texts, min(256, num_places(subject.encoder)), advance
        ),
        total=lambda subject: sum(size <= min(256, num_places(subject.encoder)) for size in LENGTHS),
    ),
    "fixed-patterns": _of_attention(
        kind=FixedFacts, measure=_on_texts(measure_fixed_patterns), draw=fixed_patterns_section
    ),
    "relations": Measurement(
        group="relations",
        kind=RelationFacts,
        measure=lambda subject, advance: measure_relations(
            subject.encoder, subject.parsed, subject.longest, advance
        ),
        draw=relations_section,
        total=lambda subject: len(subject.parsed),
        needs=("trees", "attention"),
    ),
    "effects": Measurement(
        group="heads",
        kind=Effects,
        measure=_on_texts(measure_effects),
        draw=head_figures.effects_section,
        total=_all_heads,
        needs=("texts", "attention"),
    ),
    "importance": _labelled_heads(
        kind=heads.Importance,
        measure=_on_labels(heads.measure_importance),
        draw=head_figures.importance_section,
    ),
    "one-off": _scan(measure=_on_labels(heads.measure_one_off), draw=head_figures.one_off_section),
    "one-left": _scan(measure=_on_labels(heads.measure_one_left), draw=head_figures.one_left_section),
    "head-pruning": _labelled_heads(
        kind=heads.Pruning,
        measure=_on_labels(heads.measure_pruning),
        draw=head_figures.pruning_section,
        total=lambda subject: 2 * (heads.STEPS + 1),
    ),
    "fixed": _scan(measure=_on_labels(heads.measure_fixed), draw=head_figures.fixed_section),
    "layers": Measurement(
        group="layers",
        kind=layers.LayerFacts,
        measure=_on_texts(layers.measure_layers),
        draw=layer_figures.layers_section,
    ),
    "between": Measurement(
        group="layers",
        kind=between.Between,
        measure=_between,
        draw=layer_figures.between_section,
        needs=("texts", "two"),
    ),
    "kept": Measurement(
        group="layers",
        kind=layers.Kept,
        draw=layer_figures.kept_section,
        needs=("matrices",),
        measure=lambda subject, advance: layers.measure_kept(subject.encoder),
    ),
    "cut": Measurement(
        group="layers",
        kind=layers.CutScores,
        measure=_on_labels(layers.measure_cut),
        draw=layer_figures.cut_section,
        total=_depth,
        needs=("labels", "matrices"),
    ),
    "knowledge": Measurement(
        group="knowledge",
        kind=Knowledge,
        measure=_knowledge,
        draw=knowledge_section,
        total=lambda subject: len(_pairs(subject)),
        needs=("word vectors",),
    ),
    "reasoning": Measurement(
        group="knowledge",
        kind=Knowledge,
        measure=_reasoning,
        draw=reasoning_section,
        total=lambda subject: REASONING * len(REASONING_KINDS),
        needs=("word vectors",),
    ),
    "numbers": Measurement(
        group="knowledge",
        kind=Numbers,
        measure=lambda subject, advance: measure_numbers(subject.encoder, advance),
        draw=numbers_section,
        total=lambda subject: len(layer_names(subject.encoder)),
        needs=(),
    ),
    "order": Measurement(
        group="order",
        kind=Order,
        measure=_on_texts(measure_order),
        draw=order_section,
        total=_num_texts,
    ),
    "restored": Measurement(
        group="tuned",
        kind=tuned.Restored,
        measure=lambda subject, advance: tuned.measure_restored(
            subject.labelled, subject.load_base(), advance
        ),
        draw=tuned.restored_section,
        total=lambda subject: subject.encoder.num_layers + 1,
        needs=("labels", "base"),
    ),
    "moved": Measurement(
        group="tuned",
        kind=tuned.Moved,
        measure=lambda subject, advance: tuned.measure_moved(
            subject.encoder, subject.load_base(), subject.request.texts, subject.longest, advance
        ),
        draw=tuned.moved_section,
        needs=("texts", "base"),
    ),
    "map": Measurement(
        group="map",
        kind=LayerMap,
        measure=_map,
        draw=map_section,
        total=lambda subject: SHOWN_LAYERS,
        needs=("map",),
    ),
    "sentence": Measurement(
        group="sentence",
        kind=SentenceFacts,
        measure=_sentences,
        draw=sentence_section,
        total=lambda subject: len(subject.request.sentences),
        needs=("sentences", "word vectors"),
    ),
}
