"""Times `prepare` (a text file to token shards) beside the raw tokenizer on the same unseen lines; checks its ids."""

from __future__ import annotations

import json
import statistics
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from corpus import TARGET_RATE, TRIED_CHARACTERS, Material
from generated import BYTES_A_CHARACTER, Source, generate_lines
from records import record
from tokenizers import Tokenizer
from vocabularies import KINDS, train_tokenizer

from tests.parity.tokenizer_zoo import hostile_lines
from xalign_ray.clean.filters import Filters
from xalign_ray.clean.text_stage import PARSE, TextTask
from xalign_ray.sources import stage
from xalign_ray.sources.open import WHOLE
from xalign_ray.sources.records import Part
from xalign_ray.tokens.part import Task, open_cached_tokenizer, prepare_part, prepare_step
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD

ROUNDS = 5
RATES = (0.5, TARGET_RATE, 3.0, 5.0)  # new pretokens per 100 tokens
OTHERS_SHARE = 0.4  # of the text, where the rate is not the aimed one
RAW_TAKES = 4  # the raw tokenizer is timed on every so manyth line: its cost is by the token
LINES_PER_MEGABYTE = 10_000  # whose ids are compared: a million at full size
HOSTILE_SHARE = 0.02  # of the lines whose ids are compared
FORMS = {"a line a document": 1, "documents of ten lines": 10}
COMPARED_WORDS = 12  # of a line that is compared, at most: what can differ is where pretokens meet and where lines end


def measure(material: Material) -> list[dict[str, Any]]:
    """Speed by kind of tokenizer and rate of new pretokens, and whether ids are the tokenizer's own."""
    records = []
    for kind in KINDS:
        backend = train_tokenizer(kind, material.sources, material.megabytes)
        for rate in RATES if kind == "wordpiece" else (TARGET_RATE,):
            aimed = rate == TARGET_RATE
            megabytes = material.megabytes if aimed else material.megabytes * OTHERS_SHARE
            folder = material.folder / f"{kind}-{rate}"
            found = _time_prepare(folder, backend, material.sources, megabytes, rate)
            said = (
                f"text file -> token shards / encode_batch_fast, CPU, {found['new']:.2f} new pretokens per 100 tokens"
            )
            target = 1.0 if kind == "wordpiece" and aimed else None
            how = f"{said}, {megabytes:g} MB made of {material.origin}"
            records.append(record(f"data/prepare_ratio/{kind}/{rate:g}", found["ratio"], target, how))
            if aimed:
                records.append(
                    record(f"data/raw_tokens_per_s/{kind}", found["raw"], None, "encode_batch_fast, one core")
                )
                how = f"real text, nothing learnt before: {found['cold_new']:.1f} new pretokens per 100 tokens"
                records.append(record(f"data/prepare_ratio_cold/{kind}", found["cold_ratio"], None, how))
        equal, lines = _share_equal(backend, material.sources, int(material.megabytes * LINES_PER_MEGABYTE))
        records.append(record(f"data/ids_equal/{kind}", equal, 1.0, f"share of {lines:,} lines, hostile ones included"))
    for form, lines in FORMS.items():
        ratio = _ratio_kept(material.folder / f"kept-{form}", material.word_piece, material.sources, lines)
        how = f"shards straight from text / by text that is kept, {form}, real text, nothing new to the tokenizer"
        records.append(record(f"data/prepare_kept_ratio/{form}", ratio, 0.97, how))
    return records


def _ratio_kept(folder: Path, backend: Tokenizer, sources: Sequence[Source], lines: int) -> float:
    """The least CPU time without text that is kept, over the least with it, of interleaved rounds on the same text."""
    (folder / "tokenizer").mkdir(parents=True)
    backend.save(str(folder / "tokenizer" / "tokenizer.json"))
    tasks = []
    for source in sources:
        path, code = folder / f"{source.language}.txt", source.language
        some = source.sentences()
        documents = ["\n".join(some[at : at + lines]) for at in range(0, len(some), lines)]
        path.write_text(("\n" if lines == 1 else "\n\n").join(documents) + "\n", encoding="utf-8")
        part = Part("text", (str(path),), (WHOLE,))
        tasks.append(Task(str(folder), f"text/{code}/0", f"text/{code}", (code,), part, 128, True, 0.02, (), Filters()))
    step = prepare_step([one.language for one in sources])
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS + 1):  # the first is cold
        for keep, times in taken.items():
            began = time.process_time()
            for task in tasks:
                if keep:
                    part = replace(task.part, text=str(folder / "text" / f"{task.languages[0]}.parquet"))
                    stage._make(PARSE, TextTask(part, task.languages))
                    stage._make(step, replace(task, part=part))
                else:
                    stage._make(step, task)
            times.append(time.process_time() - began)
    return min(taken[False][1:]) / min(taken[True][1:])


def _time_prepare(
    folder: Path, backend: Tokenizer, sources: Sequence[Source], megabytes: float, new: float
) -> dict[str, float]:
    """Medians over interleaved rounds, by CPU time, each on text of its own, after the real text, which is cold.

    Args:
        megabytes: text of all rounds that count.
        new: wanted new pretokens per 100 tokens, as the tokenizer counts them; the measured rate is returned.
    """
    (folder / "tokenizer").mkdir(parents=True)
    backend.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "entries.json").write_text(json.dumps([[0, word] for source in sources for word in source.vocabulary]))
    size = int(megabytes * 1e6 / ROUNDS / BYTES_A_CHARACTER)
    real = [line for source in sources for line in source.sentences()]
    cold = _time_round(folder, "cold", backend, real)
    share = new / 100  # invented words per word, for the wanted rate per token
    for seed in (98, 99):  # the first brings what any such text brings
        tried = _time_round(folder, "tried", backend, generate_lines(sources, min(size, TRIED_CHARACTERS), share, seed))
        share *= new / tried.new if seed == 99 else 1
    rounds = [
        _time_round(folder, str(n), backend, generate_lines(sources, size, share, 101 + n)) for n in range(ROUNDS)
    ]
    return {
        "ratio": statistics.median(one.prepared / one.raw for one in rounds),
        "raw": statistics.median(one.raw for one in rounds),
        "new": statistics.mean(one.new for one in rounds),
        "cold_ratio": cold.prepared / cold.raw,
        "cold_new": cold.new,
    }


@dataclass(frozen=True)
class Round:
    """Tokens per CPU second of the raw tokenizer and of prepare, and how many new pretokens 100 tokens brought."""

    raw: float
    prepared: float
    new: float


def _time_round(folder: Path, name: str, backend: Tokenizer, lines: list[str]) -> Round:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = Task(str(folder), f"text/en/{name}", "text/en", ("en",), Part("text", (str(path),), (WHOLE,)),
                128, False, 0.02, (), Filters())  # fmt: skip
    misses = open_cached_tokenizer(str(folder), LONGEST_WORD, ("en",)).misses
    chosen = lines[::RAW_TAKES]
    began = time.process_time()
    raw = sum(len(one.ids) for one in backend.encode_batch_fast(chosen, add_special_tokens=False))
    between = time.process_time()
    _, record = prepare_part(task, ("en",))
    ended = time.process_time()
    new = open_cached_tokenizer(str(folder), LONGEST_WORD, ("en",)).misses - misses
    tokens = record["counts"]["tokens"]
    path.unlink()
    return Round(raw / (between - began), tokens / (ended - between), new / tokens * 100)


def _share_equal(backend: Tokenizer, sources: Sequence[Source], count: int) -> tuple[float, int]:
    """Share of lines, generated and hostile, whose ids are the tokenizer's own; and how many were compared."""
    tokenizer, equal, compared, seed = CachedTokenizer(backend, {}), 0, 0, 500
    while compared < count:
        lines = _shorten(generate_lines(sources, 4_000_000, 0.02, seed))[: count - compared]
        lines += hostile_lines(int(len(lines) * HOSTILE_SHARE) + 1, seed)
        plain = [unicodedata.normalize("NFC", line) for line in lines]
        wanted = [one.ids for one in backend.encode_batch_fast(plain, add_special_tokens=False)]
        cut = tokenizer.tokenize(lines, 0)
        ends = np.concatenate(([0], np.cumsum(cut.word_length)))[np.cumsum(cut.line_words)]
        found = np.split(cut.pieces, ends[:-1])
        equal += sum(ours.tolist() == theirs for ours, theirs in zip(found, wanted, strict=True))
        compared, seed = compared + len(lines), seed + 1
    return equal / compared, compared


def _shorten(lines: Sequence[str]) -> list[str]:
    words = (line.split(" ") for line in lines)
    return [" ".join(some[at : at + COMPARED_WORDS]) for some in words for at in range(0, len(some), COMPARED_WORDS)]
