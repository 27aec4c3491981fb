"""Reads a retrieval set in BEIR's layout, as a set that two encoders are compared on."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.continuing.sentence_sets import QuerySet
from xalign_ray.errors import DataError
from xalign_ray.models.nearest import thin
from xalign_ray.sources.columns import number_of
from xalign_ray.sources.hub import choose_split
from xalign_ray.tasks.scored_pairs import language_of_texts
from xalign_ray.tasks.task_files import read_table
from xalign_ray.work.status_line import say

MAX_PASSAGES = 10_000  # of a retrieval set
CORPUS = "corpus.jsonl"  # of BEIR's layout


def read_query_set(folder: Path, code: str = "") -> QuerySet:
    """A folder in BEIR's layout: corpus.jsonl, queries.jsonl, and qrels/SPLIT.tsv; the split is test.

    Queries without a relevant passage are left out. Of many passages the judged ones and others, evenly spaced, are
    searched, MAX_PASSAGES in all.

    Raises:
        ConfigError: there is no split test, or the language is not clear.
        DataError: a file is missing or damaged, or judges a query or a passage that no file has.
    """
    files = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not files:
        raise DataError(f"--keep {folder}: it has no qrels/*.tsv beside {CORPUS}.")
    split = choose_split(f"{folder}/qrels", [*files], "test") if len(files) > 1 else next(iter(files))
    passages, queries = (
        {
            str(row["_id"]): " ".join(filter(None, (row.get("title"), row["text"])))
            for _, row in read_table(folder / name, ("_id", "text"), ("title",))
        }
        for name in (CORPUS, "queries.jsonl")
    )
    judged = dict[str, dict[str, float]]()
    for where, row in read_table(files[split], ("query-id", "corpus-id", "score")):
        query, passage, gain = str(row["query-id"]), str(row["corpus-id"]), number_of(row["score"])
        if query not in queries or passage not in passages or gain is None:
            raise DataError(f"{where}: its query or its passage is not in queries.jsonl and {CORPUS}.")
        judged.setdefault(query, {})[passage] = gain
    asked = {query: text for query, text in queries.items() if max(judged.get(query, {}).values(), default=0) > 0}
    if not asked:
        raise DataError(f"{files[split]}: no query has a relevant passage.")
    if len(passages) > MAX_PASSAGES:
        needed = {passage for query in asked for passage in judged[query]}
        rest = [passage for passage in passages if passage not in needed]
        needed.update(rest[index] for index in thin(len(rest), max(0, MAX_PASSAGES - len(needed))))
        say(f"{folder}: {len(needed):,} of {len(passages):,} passages are searched, all that are judged among them.")
        passages = {name: text for name, text in passages.items() if name in needed}
    language = language_of_texts(str(folder), code, [*asked.values()], "queries with passages")
    say(f"{folder}: {len(asked):,} queries ({split}), {len(passages):,} passages in {language}")
    return QuerySet(language, asked, passages, judged, folder.resolve().name)
