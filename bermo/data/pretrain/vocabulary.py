"""A WordPiece vocabulary made from counted words, the same bytes every time, and its tokenizer.

    start: every character, alone and inside a word (##)
    repeat: join the neighbouring pair that occurs most often; of equally frequent ones, the first by letters

These are the merges of Sennrich et al. 2016, as the trainer of `tokenizers` makes them for WordPiece too;
that trainer breaks ties by the order of a hash table, so that two runs on one text may differ; this one does
not.
"""

import heapq
import re
import string
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from bermo.errors import BermoError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# No punctuation to the pre-tokenizer, so these also occur inside a word.
SIGNS = "£€¥¢°±×÷−≤≥≈→²³¼½¾µ©®™ßæøœłðþ"
MARKS = "‘’“”«»–—‑…•·§¶†‡′″¿¡"
CHARACTERS = string.ascii_lowercase + string.digits + string.punctuation + MARKS + SIGNS
NUM_FOREIGN = 200
"""Characters beyond English that get pieces: the most frequent in the text."""
MAX_WORDS = 150_000
"""Rarer words change no merge of a vocabulary of this order, and cost most of the time."""
MAX_DIFFERENT = 4_000_000
"""Words that are counted side by side; beyond this number those seen once are forgotten."""
MAX_CHARACTERS = 40
"""Of a word that is counted; longer ones are addresses and noise."""
LONGEST_KEPT = 1000
"""Characters of a longer word that are kept, since its letters count for the alphabet."""

Pair = tuple[str, str]


@cache
def _splitter() -> re.Pattern[str]:
    """Words and single punctuation marks, as BERT's pre-tokenizer cuts them."""
    marks = string.punctuation + "".join(
        letter for letter in map(chr, range(128, sys.maxunicode)) if unicodedata.category(letter)[0] == "P"
    )
    inside = re.escape(marks)
    return re.compile(f"[^\\s{inside}]+|[{inside}]")


def count_words(documents: Iterable[str]) -> Counter[str]:
    """Count the lower-cased, unaccented words of the documents."""
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), _splitter()
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(splitter.findall(normalizer.normalize_str(document)))
    for word in [word for word in counts if len(word) > LONGEST_KEPT]:
        counts[word[:LONGEST_KEPT]] += counts.pop(word)
    return counts


def add_counts_(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add the counts of another part of the text; where words become too many, forget the rarest."""
    counts.update(more)
    least = 2
    while len(counts) > MAX_DIFFERENT:
        for word in [word for word, count in counts.items() if count < least]:
            del counts[word]
        least += 1


def make_vocabulary(counts: Mapping[str, int], size: int, words: Sequence[str] = ()) -> dict[str, int]:
    """Return piece -> id: special tokens, characters, the words asked for, then merges until `size`."""
    pieces = dict.fromkeys([*SPECIALS, *_alphabet(counts), *words])
    if len(pieces) >= size:
        raise BermoError(
            f"A vocabulary of {size} pieces has no room: characters and given words alone are"
            f" {len(pieces)}. Ask for a larger one with --vocabulary."
        )
    letters = {piece.removeprefix("##") for piece in pieces if len(piece.removeprefix("##")) == 1}
    usable = {
        word: count
        for word, count in counts.items()
        if len(word) <= MAX_CHARACTERS and letters.issuperset(word)
    }
    ranked = sorted(usable.items(), key=lambda item: (-item[1], item[0]))[:MAX_WORDS]
    for piece in _Merges(ranked):
        if len(pieces) == size:
            break
        pieces.setdefault(piece)
    return {piece: index for index, piece in enumerate(pieces)}


def _alphabet(counts: Mapping[str, int]) -> list[str]:
    """All characters of English text and the most frequent others, alone and inside a word."""
    seen: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            seen[letter] += count
    known = set(CHARACTERS)
    others = sorted((c for c in seen if c not in known), key=lambda c: (-seen[c], c))[:NUM_FOREIGN]
    inner = [*string.ascii_lowercase, *string.digits, *SIGNS, *others]
    return [*CHARACTERS, *others, *(f"##{letter}" for letter in inner)]


class _Merges:
    """The merged pieces in their order; a pair's count is kept up to date where a merge touches its words."""

    def __init__(self, ranked: Sequence[tuple[str, int]]) -> None:
        self.words = [[word[0], *(f"##{letter}" for letter in word[1:])] for word, _ in ranked]
        self.counts = [count for _, count in ranked]
        self.pairs: Counter[Pair] = Counter()
        self.words_of: defaultdict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self.words)):
            self._note(index, 1)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(self.heap)

    def __iter__(self) -> "_Merges":
        return self

    def __next__(self) -> str:
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if -count == self.pairs[pair] > 0:
                return self._merge(pair)
        raise StopIteration

    def _note(self, index: int, sign: int) -> set[Pair]:
        """Add a word's pairs to the counts, or take them out; return them."""
        pieces, weight = self.words[index], sign * self.counts[index]
        pairs = list(pairwise(pieces))
        for pair in pairs:
            self.pairs[pair] += weight
            if sign > 0:
                self.words_of[pair].add(index)
        return set(pairs)

    def _merge(self, pair: Pair) -> str:
        merged = pair[0] + pair[1].removeprefix("##")
        changed: set[Pair] = set()
        for index in self.words_of.pop(pair):
            if pair not in pairwise(self.words[index]):
                continue  # an earlier merge took the pair out of this word
            changed |= self._note(index, -1)
            self.words[index] = _joined(self.words[index], pair, merged)
            changed |= self._note(index, 1)
        del self.pairs[pair]
        for other in changed:
            if self.pairs[other] > 0:
                heapq.heappush(self.heap, (-self.pairs[other], other))
        return merged


def _joined(pieces: list[str], pair: Pair, merged: str) -> list[str]:
    result, index = [], 0
    while index < len(pieces):
        if tuple(pieces[index : index + 2]) == pair:
            result.append(merged)
            index += 2
        else:
            result.append(pieces[index])
            index += 1
    return result


def make_tokenizer(vocabulary: Mapping[str, int], max_length: int) -> PreTrainedTokenizerFast:
    """Build the uncased tokenizer in BERT's frame: [CLS] a [SEP] b [SEP], segments 0 and 1."""
    tokenizer = Tokenizer(models.WordPiece(dict(vocabulary), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    frame = {name: vocabulary[name] for name in ("[SEP]", "[CLS]")}
    tokenizer.post_processor = processors.BertProcessing(*frame.items())
    tokenizer.add_special_tokens(list(SPECIALS))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        do_lower_case=True,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name[1:-1].lower()}_token": name for name in SPECIALS},
    )
