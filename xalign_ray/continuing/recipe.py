"""The full recipe behind the few lines of `xalign continue`, and what was found in the data on the way to it."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from xalign_ray.config.choices import (
    ContrastedPairs,
    Distillation,
    MaskedLm,
    MaskedText,
    MomentumContrast,
    SentenceContrast,
    prompt_reserve,
)
from xalign_ray.config.language_codes import ENGLISH, check_language, name_of_pair
from xalign_ray.config.load import Recipe, load_recipe, resolve_tree
from xalign_ray.config.schema import Corpus, DataConfig, Dictionary, ParallelCorpus
from xalign_ray.continuing.five_lines import COMMAND_LINE, FiveLines
from xalign_ray.continuing.methods import (
    LARGE,
    Choice,
    Given,
    check_replay,
    choose,
    look_at_encoder,
    steps_of_pairs,
    steps_of_text,
    steps_of_time,
)
from xalign_ray.errors import ConfigError
from xalign_ray.models.families import family_of
from xalign_ray.models.hub import encoder_folder
from xalign_ray.models.open import Opened
from xalign_ray.models.sentence_files import read_sentence_files
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.language_id import codes_in_name, without_packing
from xalign_ray.sources.open import size_of
from xalign_ray.sources.pair_checks import PairChecks, check_pairs, refuse_doubtful
from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs
from xalign_ray.sources.records import Document
from xalign_ray.sources.stage import TESTS
from xalign_ray.sources.terms import find_dictionary_form
from xalign_ray.tasks.retrieval import MAX_PAIRS, TranslatedSentences
from xalign_ray.track.events import newest_data
from xalign_ray.train.cluster_address import named_cluster
from xalign_ray.vocabulary.exchange import fertility, show_fertility
from xalign_ray.vocabulary.tokenizer import encode_text
from xalign_ray.work.mirror import data_of_run
from xalign_ray.work.run_folder import RUNS, RunFolder
from xalign_ray.work.status_line import say

THE_TEST = "the test"  # the split of a run's own test pairs
ROOT = "."  # paths are relative to the current folder
EXPERIMENT = "continue"  # of MLflow, whose page begins with base against yours
ROWS_OF_TEXT = 32  # of a step, where text alone is read
DEV_FRACTION = 0.05  # of the pairs, beside the test
MAX_TESTS, MIN_TESTS = 1000, 200  # pairs kept out: of all languages together, and of two languages in any case
_TEXT_FORMATS = {".jsonl": "jsonl", ".parquet": "parquet", ".xml": "wikipedia", ".conllu": "conllu"}
MAX_FIRST = 2_000  # sentences of a language whose pieces are counted
MAX_SIZED = 1_000  # pairs of a corpus that say how long a pair is
FEW_KEPT = 100  # pairs or lines: the interval of fewer is often wider than 10 points
_TEXT = {".txt", ".text"}
_TABLES = {".csv", ".tsv", ".xlsx", ".json"}


@dataclass(frozen=True)
class Continuation:
    """A resolved `xalign continue`.

    Attributes:
        recipe: what `pretraining.pretrain` runs.
        tree: the same as a recipe's file, short.
        kept: pairs and text that must not get worse.
        notes: what was found and decided, a sentence each.
    """

    lines: FiveLines
    recipe: Recipe
    tree: Mapping[str, Any]
    encoder: Opened
    kept: Sequence[ParallelCorpus]
    kept_text: Sequence[Corpus]
    notes: Sequence[str]

    @property
    def out(self) -> Path | None:
        """The run's folder, if it was named."""
        return Path(self.lines.output) if self.lines.output else None

    @property
    def as_yaml(self) -> str:
        """The recipe as the text of a file that `xalign pretrain` runs to the same fingerprint."""
        return yaml.safe_dump(dict(self.tree), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def resolve(lines: FiveLines) -> Continuation:
    """Looks at the encoder and the data, and writes the recipe that they need; starts nothing.

    Raises:
        ConfigError: the lines, the data and the encoder do not fit together.
        DataError: a file is missing or damaged.
    """
    output = _folder_of_runs(lines.output)
    encoder = look_at_encoder(lines.model)
    no_masked_lm = family_of(encoder.name, encoder.config).no_masked_lm
    has_head = encoder.has_head or (_allows_new_head(lines.set) and not no_masked_lm)
    there = (bool(lines.pairs), bool(lines.dictionary), bool(lines.text))
    given = Given(encoder.name, has_head, *there, no_masked_lm, lines.teacher is not None)
    choice = choose(lines.method, given)
    replay = check_replay(lines.replay, given, choice.recipe)
    pairs = look_at_pairs(lines.pairs, lines.languages, lines.columns, where=lines.where) if lines.pairs else []
    tests = look_at_pairs(lines.test, lines.languages, lines.columns, "test", where=lines.where) if lines.test else []
    dev = look_at_pairs(lines.dev, lines.languages, lines.columns, "dev", where=lines.where) if lines.dev else []
    kept = [path for path in lines.keep if not is_text(path)]
    kept_pairs = look_at_pairs(kept, split="test") if kept else []
    kept_text = text_corpora([path for path in lines.keep if is_text(path)], "--keep")
    uses_text = bool(replay) or choice.recipe in ("mlm", "align")
    text = text_corpora(lines.text) if uses_text else []
    if both := sorted(_files([*pairs, *text]) & _files([*kept_pairs, *kept_text])):
        raise ConfigError(f"--keep names {both[0]}, which is trained on: forgetting is seen in what is not.")
    checks = {id(corpus): check_pairs(corpus, ROOT) for corpus in [*pairs, *tests, *dev, *kept_pairs]}
    kept_checks = [checks[id(corpus)] for corpus in kept_pairs]
    notes = [choice.why, *map(str, checks.values()), *note_kept(kept_checks, kept_text, Path(ROOT))]
    if lines.text and not text:
        why = "--replay is 0" if has_head else f"{encoder.name} has no masked-LM head to train on it"
        notes.append(f"The text is not used: {why}.")
    if lines.dictionary and not _reads_dictionary(choice, lines.set):
        notes.append(f"The dictionary is not used: {choice.recipe} reads none; --method align does.")
    if replay:
        notes.append(
            f"Replay: {replay:.0%} of the rows are text ({', '.join(c.language for c in text)}), for masked LM."
        )
    if pairs and text and not replay and choice.recipe in ("mlm", "align"):
        notes.append(f"The pairs are scored and not trained on: {choice.recipe} reads the text in their place.")
        pairs, tests = [], tests or pairs
    notes.append(f"Sentence vectors: {encoder.sentences.rule.words}.")
    tree = _tree(lines, output, encoder, choice, pairs, {"tests": tests, "dev": dev}, text, replay)
    plain = _resolved(tree, lines, choice)
    refuse_doubtful([*checks.values()], plain.config.data, plain.config.allow)
    notes += note_pieces(lines, plain.config.data)
    trained = sum(checks[id(corpus)].pairs for corpus in pairs)
    steps, words = _steps(lines, plain, trained)
    if pairs and not tests:
        data = plain.config.data
        notes.append(
            f"{100 * data.test_fraction:g} % of the pairs, at most {data.max_test_pairs:,} of two languages, are kept "
            "out as the test (--test FILE names others)."
        )
    if plain.config.data.dev_fraction:
        notes.append(
            f"{100 * plain.config.data.dev_fraction:g} % of the pairs are dev pairs: the checkpoint that is best on "
            "them is exported (--dev FILE names others; --no-keep-best exports the last checkpoint)."
        )
    predicts = any(isinstance(loss, MaskedLm) for loss in plain.config.objectives)  # what a held-out loss is of
    tree["train"] |= {"max_steps": steps, "eval_steps": None if predicts else 0}
    recipe = _resolved(tree, lines, choice)
    train = recipe.config.train
    notes.append(words if train.max_steps == steps else f"{train.in_words}, as --set says.")
    _put_settings(tree, lines.set, recipe)
    return Continuation(lines, recipe, tree, encoder, kept_pairs, kept_text, tuple(notes))


def _files(corpora: Sequence[ParallelCorpus | Corpus]) -> set[str]:
    """The files of corpora, however they are named."""
    return {os.path.realpath(path) for corpus in corpora for path in find_source(corpus, ROOT)[1]}


def _tree(
    lines: FiveLines,
    output: str,
    encoder: Opened,
    choice: Choice,
    pairs: Sequence[ParallelCorpus],
    held: Mapping[str, Sequence[ParallelCorpus]],
    text: Sequence[Corpus],
    replay: float,
) -> dict[str, Any]:
    """What differs from the recipe of the method."""
    method = load_recipe(f"continue/{choice.recipe}").config
    align = {"align": "hmm"} if choice.recipe == "weam" else {}
    data: dict[str, Any] = {
        "root": ROOT,
        "corpora": [_plain(corpus) for corpus in text],
        "parallel": [({} if corpus.brings_alignment else align) | _plain(corpus) for corpus in pairs],
        **_held_out(pairs, held, lines.keep_best),
    }
    room = family_of(encoder.name, encoder.config).max_length(encoder.config)
    if room < method.data.max_seq_length:
        data["max_seq_length"] = room
    if _reads_dictionary(choice, lines.set):
        data["dictionaries"] = [
            _plain(one) for one in dictionaries(lines.dictionary, lines.languages, [*pairs, *held["tests"]])
        ]
    on_gpu = _gpus()
    tree: dict[str, Any] = {"extends": f"continue/{choice.recipe}", "output": output, "data": data}
    streams, objectives = [*map(_plain, method.streams)], [*map(_plain, method.objectives)]
    train: dict[str, Any] = {}
    if choice.recipe == "align" and text:
        tree["streams"] = [{"kind": MaskedText().kind}]
        train = {"pairs_per_step": 0, "global_batch_size": ROWS_OF_TEXT}
    if replay:
        tree["streams"], objectives = with_replay(replay, streams, objectives)
    if prompt := encoder.sentences.rule.prompt:
        streams = tree.get("streams", streams)
        tree["streams"] = [
            one | {"prompt": prompt} if one["kind"] == ContrastedPairs().kind else one for one in streams
        ]
        reserve = math.ceil(100 * prompt_reserve(_pieces(lines.model, prompt))) / 100
        if reserve > method.data.reserve_fraction:
            data["reserve_fraction"] = reserve
    pooled = {one.kind: one.pooling for one in (SentenceContrast(), Distillation(), MomentumContrast())}
    objectives = [
        one
        if pooled.get(one["kind"], encoder.sentences.rule.pooling) == encoder.sentences.rule.pooling
        else one | {"pooling": encoder.sentences.rule.pooling}
        for one in objectives
    ]
    if lines.teacher:
        data["teacher"] = {"path": lines.teacher, "language": _language_of_all(pairs)}
        if "Normalize" in read_sentence_files(lines.teacher).kinds:
            objectives = [
                one | {"normalize": True} if one["kind"] == Distillation().kind else one for one in objectives
            ]
    if objectives != [*map(_plain, method.objectives)]:
        tree["objectives"] = objectives
    rate = method.train.optimizer.learning_rate
    train |= {"optimizer": {"learning_rate": rate / 2}} if encoder.config["hidden_size"] >= LARGE else {}
    return tree | {
        "model": {"init_from": encoder.name},
        "train": train,
        "parallel": {
            "workers": lines.workers,
            # The machine's, shared; in a cluster that is joined one, which fits everywhere.
            "cpus_per_worker": 1 if named_cluster() else max(1, (os.cpu_count() or 1) // lines.workers),
            "gpus_per_worker": int(on_gpu),
        },
        "track": {"experiment": EXPERIMENT},
    }


def note_pieces(lines: FiveLines, data: DataConfig) -> list[str]:
    """A sentence with the pieces a word of each language, counted on its first sentences; none of a slow tokenizer.

    Raises:
        ConfigError: the vocabulary cannot write a language, and is not given new pieces for it.
    """
    model = getattr(data.tokenizer, "path", None) or lines.model
    backend = _backend(model)
    if backend is None:
        return []
    sentences: dict[str, list[str]] = {}
    for corpus in data.parallel:
        for both in islice(read_pairs(corpus, ROOT, 1.0), MAX_FIRST):
            for code, sentence in zip(corpus.languages, both, strict=True):
                sentences.setdefault(code, []).append(sentence)
    for corpus in data.corpora:
        sentences.setdefault(corpus.language, []).extend(islice(read_text(corpus, Path(ROOT)), MAX_FIRST))
    found = {code: fertility(backend, some[:MAX_FIRST]) for code, some in sorted(sentences.items())}
    for code, (_, unknown) in found.items():
        if unknown > lines.allow_unknown and not getattr(data.tokenizer, "new_pieces", 0):
            raise ConfigError(
                f"{100 * unknown:.0f} % of the pieces of {code} are unknown to the vocabulary of {model}, which cannot "
                f"write it: nothing would be learned of them. Take another encoder, or train all the same: "
                f"--allow-unknown {math.ceil(20 * unknown) / 20:g}."
            )
    return [f"Pieces a word: {show_fertility(found)}."] if found else []


def _backend(model: str) -> Tokenizer | None:
    path = encoder_folder(model) / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def _pieces(model: str, prompt: str) -> int:
    """Of a prompt, by an encoder's own tokenizer; of one that comes without a file of it, as many as it has letters."""
    backend = _backend(model)
    return len(encode_text(backend, [prompt.rstrip()])[0][0]) if backend else len(prompt)


def _language_of_all(pairs: Sequence[ParallelCorpus]) -> str:
    """A language that all pairs have, English if they do; of none, that of the first."""
    shared = [code for code in pairs[0].languages if all(code in corpus.languages for corpus in pairs)]
    return ENGLISH if ENGLISH in shared else (shared or pairs[0].languages)[0]


def _allows_new_head(settings: Sequence[str]) -> bool:
    """Whether `--set allow=[new_head]` lets masked LM train a head from random weights."""
    asked = [setting for setting in settings if setting.partition("=")[0] == "allow"]
    return "new_head" in resolve_tree({"extends": "continue/mlm"}, COMMAND_LINE, "mlm", asked).config.allow


def _reads_dictionary(choice: Choice, settings: Sequence[str]) -> bool:
    """Whether words are translated by the method, or by a vocabulary that is asked for."""
    asked = any(setting.startswith("data.tokenizer") for setting in settings)
    return asked or bool(load_recipe(f"continue/{choice.recipe}").config.data.dictionaries)


def _held_out(
    pairs: Sequence[ParallelCorpus], held: Mapping[str, Sequence[ParallelCorpus]], keep_best: bool
) -> dict[str, Any]:
    """The test and the dev pairs: those given, else shares of the pairs."""
    data: dict[str, Any] = {key: [_plain(corpus) for corpus in given] for key, given in held.items() if given}
    if held["tests"] or not pairs:
        data["test_fraction"] = 0.0
    if pairs and keep_best and not held["dev"]:
        data["dev_fraction"] = DEV_FRACTION
    several = len({corpus.languages for corpus in pairs})
    return data | ({"max_test_pairs": max(MIN_TESTS, MAX_TESTS // several)} if several > 1 else {})


def _resolved(tree: Mapping[str, Any], lines: FiveLines, choice: Choice) -> Recipe:
    name = re.sub(r"[^\w.-]+", "-", f"{Path(lines.model).name}-{choice.recipe}")
    counted = {**tree, "train": {"max_steps": 1, **tree["train"]}}  # a length of 1 until it is known
    return resolve_tree(counted, COMMAND_LINE, name, lines.set)


def _steps(lines: FiveLines, recipe: Recipe, count: int) -> tuple[int, str]:
    train, data, root = recipe.config.train, recipe.config.data, Path(ROOT)
    if lines.steps is not None:
        return lines.steps, f"{lines.steps:,} steps, as asked for."
    if lines.hours is not None or lines.budget is not None:
        size = bytes_of_pair(data.parallel, root) if data.parallel else 0
        return steps_of_time(lines, recipe, Path(recipe.config.output), size)
    if data.parallel:
        return steps_of_pairs(count, train.pairs_per_step)
    sizes = [size_of(path) for corpus in data.corpora for path in find_source(corpus, root)[1]]
    return steps_of_text(sum(sizes), train.global_batch_size, data.max_seq_length)


def _put_settings(tree: dict[str, Any], settings: Sequence[str], recipe: Recipe) -> None:
    """Writes the values of `--set` into the recipe's short form; a list as a whole."""
    whole = recipe.config.model_dump(mode="json")
    for setting in settings:
        keys = setting.partition("=")[0].split(".")
        keys = keys[: next((number for number, key in enumerate(keys) if key.isdigit()), len(keys))]
        at, value = tree, whole
        for key in keys[:-1]:
            at, value = at.setdefault(key, {}), value[key]
        at[keys[-1]] = value[keys[-1]]


def _folder_of_runs(out: str | None) -> str:
    if out is None:
        return str(RUNS)
    return out.rstrip("/").rpartition("/")[0] or ("/" if out.startswith("/") else ".")


def _plain(block: Any) -> dict[str, Any]:
    """A block of a recipe without its defaults."""
    kind = {"kind": block.kind} if hasattr(block, "kind") else {}
    return kind | block.model_dump(mode="json", exclude_defaults=True)


def _gpus() -> bool:
    """Whether this machine trains on GPUs; workers of a cluster that is joined have them where a setting says so."""
    if named_cluster():
        return False
    import torch

    return torch.cuda.is_available()


# Replay: rows of monolingual text with masked LM, mixed in so that an encoder keeps what it was trained on.

Block = dict[str, Any]  # of a recipe


def with_replay(share: float, streams: Sequence[Block], objectives: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Streams and objectives of a recipe in which a share of the rows is masked text.

    The masked-LM loss keeps its whole weight, whatever the share: it is a mean over labels. In the embedded world, 80
    steps of contrast on one pair of languages raised the masked-LM loss of two others from 4.5 to 7.8 nats; to 5.0 with
    a share of 0.1, and to 5.2 with a tenth of the weight too. The trained languages gained as much in all three.

    Args:
        share: of the rows, in (0, 1).
        streams, objectives: of the recipe without replay.
    """
    assert 0 < share < 1, f"a share of {share:g} of the rows"
    others = sum(stream.get("weight", 1.0) for stream in streams)
    text = {"kind": MaskedText().kind, "weight": round(share / (1 - share) * others, 6)}
    masked_lm = MaskedLm().kind
    predicts = any(loss["kind"] == masked_lm for loss in objectives)
    return [*streams, text], [*([] if predicts else [{"kind": masked_lm}]), *objectives]


# The files that a user names, as sources of a recipe: pairs, text and dictionaries.


def text_corpora(paths: Sequence[str], flag: str = "--text") -> list[Corpus]:
    """A corpus of each language, as the files' names say it, or `de=FILE`.

    Raises:
        ConfigError: a name does not say which language the file is in.
    """
    files: dict[tuple[str, str], list[str]] = {}
    for written in paths:
        code, equals, path = written.partition("=")
        if not equals:
            path, codes = written, codes_in_name(written)
            if len(codes) != 1:
                raise ConfigError(
                    f"{flag} {written}: its name does not say its language; write LANGUAGE=FILE, such as "
                    f"{flag} de={written}."
                )
            code = codes[0]
        if without_packing(path).suffix in _TABLES:
            raise ConfigError(f"{flag} {written} is a table. Give plain text, a sentence a line.")
        form = _TEXT_FORMATS.get(without_packing(path).suffix, "text")
        files.setdefault((form, check_language(code)), []).append(path)
    return [
        Corpus.model_validate({"format": form, "language": code, "paths": several})
        for (form, code), several in files.items()
    ]


def dictionaries(paths: Sequence[str], languages: Sequence[str], pairs: Sequence[ParallelCorpus]) -> list[Dictionary]:
    """A dictionary of each file in the form that it is seen to be in; its languages by its name, by `--languages`, or
    those of the pairs.

    Raises:
        ConfigError: none of these says the languages.
    """
    of_pairs = dict.fromkeys(corpus.languages for corpus in pairs)
    found = []
    for path in paths:
        codes = codes_in_name(path)[:2]
        if len(codes) != 2:
            codes = list(languages) or (list(next(iter(of_pairs))) if len(of_pairs) == 1 else [])
        if len(codes) != 2:
            raise ConfigError(
                f"--dictionary {path}: its name does not say its two languages; call it dictionary.en-de.tsv or "
                "the like, or give --languages en,de."
            )
        form = find_dictionary_form(path)
        say(f"{path}: dictionary of format {form}, {codes[0]} and {codes[1]}")
        found.append(Dictionary(format=form, languages=(codes[0], codes[1]), paths=(path,)))
    return found


def note_kept(pairs: Sequence[PairChecks], text: Sequence[Corpus], root: Path) -> list[str]:
    """A sentence on each two languages, or language, of which too little is kept to judge it, or more than is scored.

    Raises:
        ConfigError: a kept file has no sentence.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for checks in pairs:
        counts[name_of_pair(*checks.corpus.languages), "pairs"] += checks.pairs
    for corpus in text:
        counts[corpus.language, "lines"] += sum(1 for _ in read_text(corpus, root))
    notes = []
    for (language, unit), count in counts.items():
        if not count:
            raise ConfigError(f"--keep: there are no {unit} of {language}. Name a file that has some, or leave it out.")
        if count < FEW_KEPT:
            notes.append(f"--keep: {count:,} {unit} of {language} can show only a large loss. Give {FEW_KEPT} or more.")
        if count > MAX_PAIRS:
            notes.append(f"--keep: of {count:,} {unit} of {language} {MAX_PAIRS:,} are scored, evenly spaced.")
    return notes


def is_text(path: str) -> bool:
    """Whether a kept file is text in one language, by its name; else it is read as pairs."""
    return "=" in path or (len(codes_in_name(path)) == 1 and without_packing(path).suffix in {*_TEXT, *_TEXT_FORMATS})


def bytes_of_pair(corpora: Sequence[ParallelCorpus], root: Path) -> float:
    """Mean size of the two sentences of a pair, of the first MAX_SIZED pairs of each corpus."""
    pairs = [pair for corpus in corpora for pair in islice(read_pairs(corpus, root, 1.0), MAX_SIZED)]
    return sum(len(text.encode()) for pair in pairs for text in pair) / max(1, len(pairs))


def as_sentences(corpora: Sequence[ParallelCorpus], root: Path) -> list[TranslatedSentences]:
    """The pairs of each two languages, as retrieval scores them."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for corpus in corpora:
        pairs.setdefault(corpus.languages, []).extend(read_pairs(corpus, root))
        names.setdefault(corpus.languages, []).extend(Path(path).name for path in corpus.paths)
    return [
        TranslatedSentences(code, [one for one, _ in several], [two for _, two in several], _named(names[code]))
        for code, several in pairs.items()
    ]


def _named(files: Sequence[str]) -> str:
    """A few files in words that a folder can be called by."""
    return ", ".join(files) if len(files) <= 3 else f"{files[0]} and {len(files) - 1} more"


def read_text(corpus: Corpus, root: Path) -> Iterator[str]:
    """The paragraphs or sentences of a corpus in any form, one after the other."""
    reader, paths = find_source(corpus, root)
    records = read(reader, paths, [corpus.language])
    return (text for one in records if isinstance(one, Document) for text in one.paragraphs)


def read_tests(run: Path) -> list[TranslatedSentences]:
    """The pairs that a run never trained on, as `prepare` kept them with its shards."""
    data = newest_data(RunFolder(run).events)
    found = []
    for path in sorted((data_of_run(run, data) / TESTS).glob("*.jsonl")) if data else ():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        first, second = rows[0]
        found.append(
            TranslatedSentences((first, second), [row[first] for row in rows], [row[second] for row in rows], THE_TEST)
        )
    return found
