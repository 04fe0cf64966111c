"""Make the encoder in the box, `bermo/box/`: its configuration and its uncased WordPiece tokenizer.

    python scripts/make_box.py

The vocabulary is counted, not trained: every word of the generated sentences, frequent English words,
and the commonest pieces of both. Every character of written English is a piece too, alone and inside
a word, so that no English text gives an unknown token. (The WordPiece trainer of `tokenizers` breaks
ties at random; counting gives the same files, byte for byte.)
"""

import string
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedTokenizerFast

from bermo.data.sentences import lexicon

FOLDER = Path(__file__).parents[1] / "bermo" / "box"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENDINGS = ("s", "es", "d", "ed")
PIECES = 600
MAX_LENGTH = 512
# No punctuation to the pre-tokenizer, so these also occur inside a word.
SIGNS = "£€¥¢°±×÷−≤≥≈→²³¼½¾µ©®™ßæøœłðþ"
MARKS = "‘’“”«»–—‑…•·§¶†‡′″¿¡"
CHARACTERS = string.ascii_lowercase + string.digits + string.punctuation + MARKS + SIGNS
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
    found = set(FREQUENT.split())
    for nouns in lexicon.NOUNS.values():
        for noun in nouns:
            found |= whole_forms(*noun)
    for frame in lexicon.TRANSITIVE + lexicon.INTRANSITIVE + lexicon.CLAUSAL:
        found |= whole_forms(*frame.verb)
    for group in (*lexicon.ADJECTIVES.values(), *lexicon.OTHERS.values(), lexicon.SUBORDINATORS):
        found.update(word.lower() for word in group)
    return found


def common_pieces(words: set[str]) -> list[str]:
    """List the most frequent starts and insides of words, two to four letters long."""
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(word[:size] for size in (2, 3, 4))
        spans = ((at, size) for at in range(1, len(word)) for size in (2, 3, 4))
        counts.update("##" + word[at : at + size] for at, size in spans if at + size <= len(word))
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    return [piece for piece in ranked if piece not in words][:PIECES]


def make_tokenizer() -> Tokenizer:
    """Build the tokenizer in BERT's frame: [CLS] a [SEP] b [SEP], segments 0 and 1."""
    words = known_words()
    inside = ["##" + character for character in string.ascii_lowercase + string.digits + SIGNS]
    endings = ["##" + ending for ending in ENDINGS]
    pieces = [*SPECIALS, *CHARACTERS, *inside, *endings, *sorted(words), *common_pieces(words)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    frame = {name: vocabulary[name] for name in ("[SEP]", "[CLS]")}
    tokenizer.post_processor = processors.BertProcessing(*frame.items())
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def make_config(vocabulary: int) -> BertConfig:
    """Choose the encoder's shape: deep enough to have layers to mix, small enough for two cores."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=256,
        hidden_act="relu",  # the gradient of gelu takes a seventh of a step on some processors
        # From a random start a few hundred steps underfit, and dropout only slows them.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=SPECIALS.index("[PAD]"),
        architectures=["BertModel"],
    )


def main() -> None:
    """Write the files of the box."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(),
        model_max_length=MAX_LENGTH,
        do_lower_case=True,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name[1:-1].lower()}_token": name for name in SPECIALS},
    )
    tokenizer.save_pretrained(FOLDER)
    make_config(len(tokenizer)).save_pretrained(FOLDER)


if __name__ == "__main__":
    main()
