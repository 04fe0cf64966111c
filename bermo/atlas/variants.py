"""Methods of the atlas that differ from another one by an option: which layers stay, how it is fine-tuned, by
whose loss it is taught.
"""

from collections.abc import Mapping, Sequence

from bermo.atlas import published
from bermo.atlas.steps import Published, Train
from bermo.atlas.trainings import named
from bermo.distill_spec import Paper
from bermo.spec import KeepBy

RULES: Mapping[KeepBy, str] = {
    "last": "the last ones",
    "alternate": "every second one",
    "symmetric": "the first and the last",
    "contribution": "those that change their input most",
}
"""The other ways to leave layers out (Poor Man's BERT)."""
TUNED: Sequence[tuple[str, Mapping[str, object], str, float, Sequence[Published]]] = (
    ("lora", {"lora": 8}, "the encoder is frozen and gets updates of rank 8", 1.0, (published.LORA,)),
    ("mixout", {"mixout": 0.7}, "weights fall back to the encoder's at random while it trains", 1.5, ()),
    ("r-drop", {"rdrop": 1.0}, "two passes with different dropout have to agree", 2.0, (published.R_DROP,)),
    (
        "smart",
        {"adversarial": "smart"},
        "answers have to stay where words' vectors move a little",
        3.0,
        (published.SMART,),
    ),
    (
        "freelb",
        {"adversarial": "freelb"},
        "trained where words' vectors are moved to hurt most",
        3.0,
        (published.FREELB,),
    ),
)
"""Ways of fine-tuning that keep more of the encoder: name, options, what it is, cost, what was published."""

PAPERS: Sequence[tuple[Paper, str, str, Train, Published]] = (
    ("distilbert", "DistilBERT", "every second layer", named("distilbert"), published.DISTILBERT),
    ("pkd", "PKD", "every second layer", named("pkd"), published.PKD_6),
    (
        "tinybert",
        "TinyBERT",
        "a third of the layers, half the neurons",
        named("tinybert", 1 / 3, 0.5),
        published.TINYBERT,
    ),
    ("minilm", "MiniLM", "every second layer", named("minilm"), published.MINILM),
)
"""Losses that `bermo train --distill-as` knows: paper, its name, the student, its training, its row."""
