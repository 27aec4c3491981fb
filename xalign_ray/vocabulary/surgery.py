"""Vocabulary surgery: exchanges a tokenizer for another, adds joined pieces to it, or drops pieces from it.

Where pieces are added or dropped other text is cut as before. What each model of pieces promises, and why:
docs/explanation/methods.md, New pieces for a vocabulary, Fewer pieces, Another vocabulary.
"""

from __future__ import annotations

import json
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.vocabulary.exchange import SHARED, StartRows, combine_similar, read_pieces, start_rows
from xalign_ray.vocabulary.tokenizer import tokenize_words
from xalign_ray.vocabulary.tokenizer_folder import SPECIAL, vocabulary, wrap_tokenizer
from xalign_ray.vocabulary.words import scripts_in

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pair = tuple[int, int]
_TSHEG = "\u0f0b"  # stands between the syllables of a Tibetan or Dzongkha word, and counts as a letter of it
_COUNTED = 1 << 12  # lines that are tokenized together
_OF_A_SCRIPT = 1e-3  # least share of the text's pieces that makes their script one that the text is in
_PREFERRED = 1e-6  # score of a joined piece of a unigram model above its two parts' sum


def exchange(
    old: PreTrainedTokenizerFast,
    new: PreTrainedTokenizerFast,
    init: Literal["dictionary", "mean", "focus", "random"],
    translations: Mapping[str, Sequence[str]],
    lines: Sequence[str],
) -> tuple[StartRows, dict[str, int]]:
    """The initial rows of another vocabulary, and the number of each kind; see `start_rows`.

    Args:
        init: how pieces begin that the two do not share.
        translations: the trained pairs of the dictionary, by `look_up_form`.
        lines: text in which similar use of pieces is counted.
    """
    special: dict[int, int | None] = dict.fromkeys(new.all_special_ids)
    for name in SPECIAL:
        ours, theirs = (getattr(side, f"{name}_token_id") for side in (new, old))
        if ours is not None and special.get(ours) is None:
            special[ours] = theirs
    return start_rows(
        old.backend_tokenizer,
        new.backend_tokenizer,
        special,
        vocabulary(old).unknown,
        translations if init == "dictionary" else {},
        partial(combine_similar, new.backend_tokenizer, lines) if init == "focus" else None,
        from_pieces=init != "random",
    )


def trim(
    tokenizer: PreTrainedTokenizerFast,
    lines: Iterable[str],
    min_count: int,
    prompts: Collection[str] = ("",),
    special: Collection[int] = (),
    whole_scripts: bool = False,
) -> tuple[PreTrainedTokenizerFast, StartRows, dict[str, int]]:
    """The tokenizer without the pieces that text does not use, the old row of each, and the number of each kind.

    Args:
        min_count: how often a piece must stand in the lines, behind one of the prompts.
        special: ids that stay, beside those of the tokenizer's special pieces.
        whole_scripts: as of `pieces_to_keep`.
    """
    backend = tokenizer.backend_tokenizer
    counts = count_pieces(backend, lines, prompts)
    keep = pieces_to_keep(backend, counts, {*tokenizer.all_special_ids, *special}, min_count, whole_scripts)
    rows = StartRows(np.ones(len(keep), np.int32), np.asarray(keep, np.int32), np.ones(len(keep), np.float32))
    counts = {SHARED: len(keep), "dropped": backend.get_vocab_size() - len(keep)}
    return wrap_tokenizer(keep_pieces(backend, keep), like=tokenizer), rows, counts


def extend(
    tokenizer: PreTrainedTokenizerFast, lines: Iterable[str], count: int
) -> tuple[PreTrainedTokenizerFast, dict[int, list[int]]]:
    """The tokenizer with the commonest neighbours inside words joined, and the old pieces of each; see `join_pieces`.

    Args:
        count: of new pieces at most.
    """
    never_joined = {vocabulary(tokenizer).unknown, *tokenizer.all_special_ids}
    backend, parts = add_subwords(tokenizer.backend_tokenizer, lines, count, never_joined)
    return wrap_tokenizer(backend, like=tokenizer), parts


def add_subwords(
    tokenizer: Tokenizer, lines: Iterable[str], count: int, whole: Collection[int]
) -> tuple[Tokenizer, dict[int, list[int]]]:
    """The tokenizer with the commonest neighbours inside words joined, and the old pieces of each; see `join_pieces`.

    Characters that a unigram model cannot write become pieces first, whose old piece is the unknown one.
    """
    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    words = _count_words(lines, normalize)
    tokenizer, characters = _add_characters(tokenizer, words, count)
    cut = dict(zip(words, tokenize_words(tokenizer, [*words]), strict=True))
    tokenizer, joined = join_pieces(tokenizer, words, cut, count - len(characters), whole)
    of_old = {new: [old for part in parts for old in characters.get(part, [part])] for new, parts in joined.items()}
    return tokenizer, characters | of_old


def lacks_characters(tokenizer: Tokenizer) -> bool:
    """Whether `add_subwords` gives it characters that it lacks: a unigram model that has them as unknown pieces."""
    model = _tree(tokenizer)["model"]
    return model["type"] == "Unigram" and model["unk_id"] is not None and not model.get("byte_fallback")


def _add_characters(
    tokenizer: Tokenizer, words: Mapping[str, int], count: int
) -> tuple[Tokenizer, dict[int, list[int]]]:
    """A unigram model with the commonest characters that it lacks, each as unlikely as its rarest piece."""
    if not lacks_characters(tokenizer):
        return tokenizer, {}
    tree = _tree(tokenizer)
    model = tree["model"]
    known, times = {name for name, _ in model["vocab"]}, Counter[str]()
    for word, seen in words.items():
        times.update({character: seen for character in word if character not in known})
    first, rarest = len(model["vocab"]), min(score for _, score in model["vocab"])
    common = [character for character, seen in times.most_common(count) if seen > 1]
    model["vocab"] += [[character, rarest] for character in common]
    return Tokenizer.from_str(json.dumps(tree)), {first + n: [model["unk_id"]] for n in range(len(common))}


def _count_words(lines: Iterable[str], normalize: Callable[[str], str]) -> Counter[str]:
    """Runs of letters and their marks, of two characters or more, that blanks and punctuation alone set apart."""
    strings: Counter[str] = Counter()
    for line in lines:
        strings.update(line.split())
    words: Counter[str] = Counter()
    for between_blanks, count in strings.items():  # each of them looked at once, however often it stands in the text
        for word in normalize(between_blanks).split():
            if inner := word if word.isalpha() else _inner(word.strip(string.punctuation)):
                words[inner] += count
    return words


def _inner(word: str) -> str:
    """A word without the signs around it; empty if there are others inside."""
    if word.isalpha():
        return word
    kinds = ["L" if character == _TSHEG else unicodedata.category(character)[0] for character in word]
    inside = [at for at, kind in enumerate(kinds) if kind in "LMN"]
    is_word = inside and set(kinds[inside[0] : inside[-1] + 1]) <= {"L", "M"}
    return word[inside[0] : inside[-1] + 1] if is_word else ""


def count_pieces(tokenizer: Tokenizer, lines: Iterable[str], prompts: Collection[str] = ("",)) -> NDArray[np.int64]:
    """The count of each piece in text, the largest over the prompts that stand before each line: [V]."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    counts = np.zeros((len(prompts), 1 + max(tokenizer.get_vocab().values())), np.int64)
    left = iter(lines)
    while some := [*islice(left, _COUNTED)]:
        for of_prompt, prompt in zip(counts, prompts, strict=True):
            for encoding in tokenizer.encode_batch_fast([prompt + line for line in some], add_special_tokens=False):
                np.add.at(of_prompt, encoding.ids, 1)
    return counts.max(axis=0)


def pieces_to_keep(
    tokenizer: Tokenizer,
    counts: NDArray[np.int64],
    special: Collection[int],
    min_count: int,
    whole_scripts: bool = False,
) -> list[int]:
    """The ids of the pieces that a trimmed tokenizer keeps, ascending.

    Beside those that are used: special ones; single bytes, and single characters of the text; what BPE makes pieces of;
    and the least likely piece of a unigram model, by which it prices a character that it does not know.

    Args:
        counts: of each piece in the text, [V].
        special: ids that are kept whatever the text is.
        min_count: how often a piece must stand in the text.
        whole_scripts: whether all pieces stay whose letters are of scripts that the text is in.
    """
    pieces = {number: text for number, (_, text) in read_pieces(tokenizer, special).items()}
    seen = b"".join(text for number, text in pieces.items() if counts[number]).decode("utf-8", "ignore")
    characters = {character.encode() for character in seen}
    short = {number for number, text in pieces.items() if len(text) == 1 or text in characters}
    keep = short | {number for number in pieces if counts[number] >= min_count}
    if whole_scripts:
        scripts = {number: scripts_in(text.decode("utf-8", "ignore")) for number, text in pieces.items()}
        times = Counter[str]()
        for number in np.flatnonzero(counts).tolist():
            times.update(dict.fromkeys(scripts.get(number, ()), int(counts[number])))
        usual = {script for script, count in times.items() if count >= _OF_A_SCRIPT * times.total()}
        keep |= {number for number, of_piece in scripts.items() if of_piece <= usual}
    model = json.loads(tokenizer.to_str())["model"]
    if model["type"] == "Unigram":
        scores = [score for _, score in model["vocab"]]
        keep.add(min(pieces.keys() & range(len(scores)), key=lambda number: (scores[number], number)))
    elif model["type"] == "BPE":
        keep |= _made_of(model, keep)
    return sorted(keep | set(special))


def _made_of(model: Mapping[str, Any], keep: Collection[int]) -> set[int]:
    """What merges may make these pieces of, however deep."""
    parts: dict[str, set[str]] = {}
    for left, right, joined in _merges(model):
        parts.setdefault(joined, set()).update((left, right))
    names = {number: name for name, number in model["vocab"].items()}
    parts_of_kept: set[str] = set()
    waiting = [names[number] for number in keep if number in names]
    while waiting:
        waiting.extend(new := parts.get(waiting.pop(), set()) - parts_of_kept)
        parts_of_kept |= new
    return {model["vocab"][name] for name in parts_of_kept}


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The two parts of each merge, and their join."""
    return [(left, right, _joined(model, left, right)) for left, right in model["merges"]]


def _joined(model: Mapping[str, Any], left: str, right: str) -> str:
    return left + right.removeprefix(model.get("continuing_subword_prefix") or "")


def keep_pieces(tokenizer: Tokenizer, keep: Sequence[int]) -> Tokenizer:
    """The tokenizer with these pieces alone: piece `keep[i]` becomes piece i. Text of these pieces is cut as before."""
    tree = _tree(tokenizer)
    model, new = tree["model"], {old: number for number, old in enumerate(keep)}
    if model["type"] == "Unigram":
        model |= {"vocab": [model["vocab"][old] for old in keep], "unk_id": new.get(model["unk_id"])}
    else:
        model["vocab"] = {name: new[old] for name, old in model["vocab"].items() if old in new}
    if model["type"] == "BPE":
        merges = zip(model["merges"], _merges(model), strict=True)
        model["merges"] = [merge for merge, names in merges if model["vocab"].keys() >= set(names)]
    tree["added_tokens"] = [token | {"id": new[token["id"]]} for token in tree["added_tokens"] if token["id"] in new]
    tree["post_processor"] = _renumbered(tree["post_processor"], new)
    return Tokenizer.from_str(json.dumps(tree))


def join_pieces(
    tokenizer: Tokenizer, words: Mapping[str, int], cut: Mapping[str, Sequence[int]], count: int, whole: Collection[int]
) -> tuple[Tokenizer, dict[int, list[int]]]:
    """The tokenizer with its commonest neighbours inside words joined to new pieces, pair after pair as BPE learns.

    BPE and unigram models cut all text as before and then join: a new merge comes last, a new piece scores what its
    parts do. WordPiece takes the longest piece first, so the rest of a word behind a new piece may be cut anew.

    Args:
        words: how often each word stands in the text.
        cut: the pieces of each word.
        count: of new pieces at most, each seen twice or more.
        whole: ids that are never joined, such as the unknown piece.

    Returns:
        The new tokenizer, and for each new id the old pieces that it is made of.
    """
    tree = _tree(tokenizer)
    model = tree["model"]
    if model["type"] == "Unigram":
        names = {number: name for number, (name, _) in enumerate(model["vocab"])}
    else:
        names = {number: name for name, number in model["vocab"].items()}
    known, first = {*names.values()}, 1 + max(names)
    parts: dict[int, list[int]] = {}

    def join(pair: Pair) -> int | None:
        """The id of a new piece; None if the two cannot be one."""
        left, right = (names[part] for part in pair)
        name = _joined(model, left, right)
        if name in known or any(part in whole or names[part].startswith("<0x") for part in pair):
            return None
        number = first + len(parts)
        names[number], parts[number] = name, [old for part in pair for old in parts.get(part, [part])]
        known.add(name)
        if model["type"] == "Unigram":
            model["vocab"].append([name, sum(model["vocab"][part][1] for part in pair) + _PREFERRED])
        else:
            model["vocab"][name] = number
        if model["type"] == "BPE":
            model["merges"].append([left, right])
        return number

    _learn_joins([(list(cut[word]), times) for word, times in sorted(words.items())], count, join)
    return Tokenizer.from_str(json.dumps(tree)), parts


def _learn_joins(words: Sequence[tuple[list[int], int]], count: int, join: Callable[[Pair], int | None]) -> None:
    """Joins the commonest pair in all words, again and again (Sennrich et al. 2016, algorithm 1)."""
    counts: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = {}
    for number, (pieces, times) in enumerate(words):
        for pair in pairwise(pieces):
            counts[pair] += times
            places.setdefault(pair, set()).add(number)
    heap = [(-times, pair) for pair, times in counts.items()]
    heapify(heap)
    while count and heap:
        times, pair = heappop(heap)
        if counts[pair] != -times:
            continue  # it was counted anew since
        if times > -2:
            break
        if (new := join(pair)) is None:
            continue
        count -= 1
        changed: set[Pair] = set()
        for number in places.pop(pair):
            pieces, seen = words[number]
            for old in pairwise(pieces):
                counts[old] -= seen
                changed.add(old)
            pieces[:] = _with_joined(pieces, pair, new)
            for neighbours in pairwise(pieces):
                counts[neighbours] += seen
                places.setdefault(neighbours, set()).add(number)
                changed.add(neighbours)
        for neighbours in changed - {pair}:
            heappush(heap, (-counts[neighbours], neighbours))


def _with_joined(pieces: Sequence[int], pair: Pair, new: int) -> list[int]:
    joined: list[int] = []
    for piece in pieces:
        if joined and (joined[-1], piece) == pair:
            joined[-1] = new
        else:
            joined.append(piece)
    return joined


def _tree(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer as JSON, its added tokens among the model's, which numbers those anew that it does not have."""
    tree = json.loads(tokenizer.to_str()) | {"padding": None, "truncation": None}
    model, added = tree["model"], {token["id"]: token["content"] for token in tree["added_tokens"]}
    for number, name in sorted(added.items()):
        if model["type"] != "Unigram":
            model["vocab"].setdefault(name, number)
        elif number >= len(model["vocab"]):
            assert number == len(model["vocab"]), "added tokens follow the pieces without a gap"
            model["vocab"].append([name, 0.0])
    return tree


def _renumbered(part: Any, new: Mapping[int, int]) -> Any:
    """A post-processor with its ids changed: `"ids": [2]` of templates, `["[SEP]", 102]` of BERT's kind."""
    if isinstance(part, dict):
        return {
            key: [new[number] for number in value] if key == "ids" else _renumbered(value, new)
            for key, value in part.items()
        }
    if isinstance(part, list) and len(part) == 2 and isinstance(part[0], str) and type(part[1]) is int:
        return [part[0], new[part[1]]]
    return [_renumbered(item, new) for item in part] if isinstance(part, list) else part
