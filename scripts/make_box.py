"""Make the encoder in the box, `bermo/box/`, from a pretraining, or untrained.

    python scripts/make_box.py words words.txt
    bermo pretrain --text part0.txt.xz part1.txt.xz --words words.txt --config box --half
                   --minutes 6 --precision bf16 --out runs/box
    bermo pretrain --text part0.txt.xz part1.txt.xz --model runs/box/model --teacher gte-small --half
                   --minutes 8 --precision bf16 --out runs/taught
    python scripts/make_box.py pack runs/taught

`words` lists what the vocabulary must hold whole: every word of the generated sentences, less its regular
endings. `pack` checks the size and copies model, tokenizer and card. `untrained` makes the box without
weights: its vocabulary is counted, with frequent English words and the commonest pieces of both.
"""

import shutil
import string
import sys
from collections import Counter
from pathlib import Path

from transformers import BertConfig

from bermo.data.pretrain.vocabulary import CHARACTERS, SIGNS, SPECIALS, make_tokenizer
from bermo.data.sentences import lexicon
from bermo.encoders.backbone import load_encoder, load_tokenizer
from bermo.errors import BermoError
from bermo.files import whole_folder, write_text
from bermo.sums import SUMS_FILE

FOLDER = Path(__file__).parents[1] / "bermo" / "box"
ENDINGS = ("s", "es", "d", "ed")
PIECES = 600
MAX_LENGTH = 512
MAX_BYTES = 12_000_000
MIN_LAYERS = 6
# Frequent words and endings that the generated sentences lack.
FREQUENT = """
about above across after again against ago all almost along already also always am among an and any
anyone anything are area around as ask at available away back bad be became because become been
before began begin behind being beside best better between big both bring business but by call called came can
cannot case century certain change clear come company could country course current day days dead
deal decided did different do does doing done down during each early easy either else end enough
even ever every everyone everything example experience face fact family far fast few film final
first five following food for form found four free friend friends from full game gave general get
gets getting give given go goes going gone good got government great group had half hand happened
hard has have having he head health help her here high him himself his history home hope hour how
however hundred idea if important in including information instead interest into is issue it its
itself job just kind knew know known language large last late later law least less let level life
light line list little local long look looked looking lot low made main make makes making many may
maybe me mean means might million mind minutes moment money month months more morning most movie
much music must my name national near necessary need never new news next night no north not nothing
now number of off often oh old on once one only open or other others our out outside over own page part
party past people perhaps period person place plan play point political position possible power
present president private probably problem process program provide public put question quite rather
read real really reason recent research result right same second seem seems seen service set she
should show side simple since six small so social some someone something sometimes soon sort south
special start state states still stop such sure system take taken takes taking team ten term test
than that the their them themselves then there these they thing things think third this those
though three through time times to today together told too took toward try trying turn two type
under until up upon us use used using usually various very view want wanted war was water way ways
we week weeks well went were west what when where whether which while white who whole whose why will
with within without won word words world would year years yes yet you yourself
"""


def whole_forms(*forms: str) -> set[str]:
    """Return the forms of a word that need a piece of their own: `gates` is `gate` and `##s`.

    An ending shared by hundreds of words is learned from few sentences; hundreds of whole forms are not.
    """
    base = forms[0]
    return {base} | {form for form in forms if form.removeprefix(base) not in ENDINGS}


def known_words() -> set[str]:
    """Collect the words of the generator, less their regular endings, and the frequent words."""
    known = set(FREQUENT.split())
    for nouns in lexicon.NOUNS.values():
        for noun in nouns:
            known |= whole_forms(*noun)
    for frame in lexicon.TRANSITIVE + lexicon.INTRANSITIVE + lexicon.CLAUSAL:
        known |= whole_forms(*frame.verb)
    for group in (*lexicon.ADJECTIVES.values(), *lexicon.OTHERS.values(), lexicon.SUBORDINATORS):
        known.update(word.lower() for word in group)
    return known


def common_pieces(words: set[str]) -> list[str]:
    """List the most frequent starts and insides of words, two to four letters long."""
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(word[:size] for size in (2, 3, 4))
        spans = ((at, size) for at in range(1, len(word)) for size in (2, 3, 4))
        counts.update("##" + word[at : at + size] for at, size in spans if at + size <= len(word))
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    return [piece for piece in ranked if piece not in words][:PIECES]


def counted_vocabulary() -> dict[str, int]:
    """Return the untrained box's pieces: characters, endings, whole words, common parts of them."""
    words = known_words()
    inside = ["##" + character for character in string.ascii_lowercase + string.digits + SIGNS]
    endings = ["##" + ending for ending in ENDINGS]
    pieces = [*SPECIALS, *CHARACTERS, *inside, *endings, *sorted(words), *common_pieces(words)]
    return {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}


def make_config(vocabulary: int) -> BertConfig:
    """Choose the encoder's shape: deep enough to have layers to mix, small enough for two cores."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=256,
        # The gradient of gelu takes a seventh of a step on some processors.
        hidden_act="relu",
        # From a random start a few hundred steps underfit, and dropout only slows them.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=SPECIALS.index("[PAD]"),
        architectures=["BertModel"],
    )


def write_untrained(folder: Path) -> None:
    """Write a box that has a shape and a tokenizer, but no weights."""
    tokenizer = make_tokenizer(counted_vocabulary(), MAX_LENGTH)
    tokenizer.save_pretrained(folder)
    make_config(len(tokenizer)).save_pretrained(folder)


def pack(run: Path, folder: Path) -> None:
    """Put the encoder of a pretraining into the package, whole or not at all."""
    source = run / "model"
    encoder = load_encoder(source).encoder
    tokenizer = load_tokenizer(source)
    size = sum(file.stat().st_size for file in source.iterdir() if file.suffix != ".md")
    if size > MAX_BYTES:
        raise BermoError(
            f"{source} has {size:,} bytes, but the box holds {MAX_BYTES:,}. Pretrain with --half, or smaller."
        )
    if encoder.config.num_hidden_layers < MIN_LAYERS:
        raise BermoError(
            f"The box needs {MIN_LAYERS} layers, but {source} has {encoder.config.num_hidden_layers}."
        )
    lost = sorted(word for word in known_words() if len(tokenizer.tokenize(word)) > 1)
    if lost:
        raise BermoError(
            f"The vocabulary cuts {len(lost)} words of the generated sentences ({', '.join(lost[:3])} …)."
            " Pretrain with --words; see the head of this file."
        )
    with whole_folder(folder) as temporary:
        # A wheel has sums of its own.
        for file in (file for file in source.iterdir() if file.name != SUMS_FILE):
            shutil.copy2(file, temporary / file.name)


def main(arguments: list[str]) -> int:
    """Do what the first word says."""
    try:
        match arguments:
            case ["words", target]:
                endings = [f"##{ending}" for ending in ENDINGS]
                write_text(Path(target), "\n".join([*endings, *sorted(known_words())]) + "\n")
            case ["pack", run]:
                pack(Path(run), FOLDER)
            case ["untrained"]:
                write_untrained(FOLDER)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except BermoError as error:
        print(f"make_box: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
