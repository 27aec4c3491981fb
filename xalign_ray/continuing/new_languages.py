"""Languages that are new to an encoder: by the list of its model card, else by how many pieces it needs for a word"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from tokenizers import Tokenizer

from xalign_ray.config.language_codes import ENGLISH, check_language
from xalign_ray.config.schema import Corpus, ParallelCorpus
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.continuing.files import ROOT, read_text
from xalign_ray.continuing.five_lines import MOST_UNKNOWN
from xalign_ray.errors import ConfigError
from xalign_ray.models.hub import encoder_folder
from xalign_ray.models.open import Opened
from xalign_ray.sources.pair_forms import read_pairs
from xalign_ray.vocabulary.exchange import fertility
from xalign_ray.vocabulary.surgery import lacks_characters
from xalign_ray.work.run_folder import CARD

MAX_FIRST = 2_000  # sentences of a language whose pieces are counted
TIMES_ENGLISH = 2  # pieces a word, from which a language is new to an encoder that names none
_FRONT = re.compile(r"\A---\n(.*?)^---$", re.DOTALL | re.MULTILINE)

Pieces = Mapping[str, tuple[float, float]]


def open_pieces(model: str) -> Tokenizer | None:
    """The fast tokenizer of an encoder; None of a slow one."""
    path = encoder_folder(model) / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def pieces_a_word(model: str, pairs: Sequence[ParallelCorpus], text: Sequence[Corpus]) -> Pieces:
    """Pieces a word and the share of unknown pieces of each language's first sentences; of a slow tokenizer none."""
    if (tokenizer := open_pieces(model)) is None:
        return {}
    sentences: dict[str, list[str]] = {}
    for corpus in pairs:
        for pair in islice(read_pairs(corpus, ROOT, 1.0), MAX_FIRST):
            for code, sentence in zip(corpus.languages, pair, strict=True):
                sentences.setdefault(code, []).append(sentence)
    for corpus in text:
        sentences.setdefault(corpus.language, []).extend(islice(read_text(corpus), MAX_FIRST))
    return {code: fertility(tokenizer, some[:MAX_FIRST]) for code, some in sorted(sentences.items())}


def new_languages(encoder: Opened, pieces: Pieces) -> dict[str, str]:
    """The languages that are new to an encoder, each with the reason."""
    if listed := card_languages(encoder):
        return {
            code: f"its model card lists {len(listed)} languages, and {code} is none"
            for code in pieces
            if code.partition("-")[0] not in listed
        }
    return {
        code: f"{100 * unknown:.0f} % of the pieces of {code} are unknown"
        if unknown > MOST_UNKNOWN
        else f"{code} takes {count / pieces[ENGLISH][0]:.1f} times as many pieces a word as English"
        for code, (count, unknown) in pieces.items()
        if is_costly(code, pieces) or unknown > MOST_UNKNOWN
    }


def is_costly(code: str, pieces: Pieces) -> bool:
    """Whether a language needs more than TIMES_ENGLISH as many pieces a word as the English of the data."""
    return ENGLISH in pieces and pieces[code][0] > TIMES_ENGLISH * pieces[ENGLISH][0]


def needs_pieces(tokenizer: Tokenizer | None, pieces: Pieces) -> list[str]:
    """The languages for which pieces are added; of letters that the vocabulary lacks a whole word is one, and cheap."""
    can_write = tokenizer is not None and lacks_characters(tokenizer)
    return [
        code
        for code, (_, unknown) in pieces.items()
        if is_costly(code, pieces) or (can_write and unknown > MOST_UNKNOWN)
    ]


def card_languages(encoder: Opened) -> set[str]:
    """The languages in the metadata of an encoder's model card; empty where it has none."""
    card = encoder.folder / CARD
    front = _FRONT.search(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    try:
        metadata = parse_yaml(front[1]) if front else None
    except ConfigError:
        return set()
    listed = metadata.get("language") if isinstance(metadata, Mapping) else None
    codes = set()
    for code in [listed] if isinstance(listed, str) else listed or []:
        try:
            codes.add(check_language(str(code)).partition("-")[0])
        except ConfigError:
            continue  # such as "multilingual"
    return codes


def teacher_language(pairs: Sequence[ParallelCorpus]) -> str:
    """The language of all pairs that a teacher reads: English if it is one; empty where they share none."""
    shared = [code for code in pairs[0].languages if all(code in corpus.languages for corpus in pairs)]
    return ENGLISH if ENGLISH in shared else (shared or [""])[0]


def adds_language(encoder: Opened, pairs: Sequence[ParallelCorpus], pieces: Pieces) -> str:
    """Why an encoder of sentences learns these pairs as languages that are added to it; empty if it does not."""
    new = new_languages(encoder, pieces) if encoder.sentences.rule.is_own and pairs else {}
    teacher_side = teacher_language(pairs) if pairs else ""
    if not new or not teacher_side or teacher_side in new:
        return ""
    return f"Method add: pairs, an encoder of sentences, and a new language ({'; '.join(new.values())})."
