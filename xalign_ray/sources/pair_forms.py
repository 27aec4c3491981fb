"""Finds files of pairs, their form by their first rows, and the columns that translate each other; reads them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xalign_ray.config.language_codes import check_language
from xalign_ray.config.sources import WITH_COLUMNS, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.columns import condition_of, fulfils, is_text, number_of
from xalign_ray.sources.first_rows import FirstRows, look_at_file, look_at_table, look_at_texts
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.hub import SPLITS, choose_split, fetch_dataset, find_saved
from xalign_ray.sources.language_id import (
    PACKAGE,
    codes_in_name,
    find_pair,
    identify,
    is_alike,
    is_installed,
    is_negative,
    language_of_file,
    language_of_name,
    without_region,
)
from xalign_ray.sources.open import expand
from xalign_ray.sources.records import BOTH_EMPTY, BadRow, Pair, list_reasons, list_some
from xalign_ray.sources.tables import ROWS
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import absolute_path, is_url

MAX_BAD_FRACTION = 0.01  # of rows that are read without a recipe
SHOWN_REASON = 100  # characters
MANY = 8  # names that a message lists
PIVOT = "en"  # among languages that have as many texts
ALL_ROWS = "all"  # what stands for a condition that each row fulfils
NO_LANGUAGES = {*SPLITS, "sts"}  # words in names of files of scored pairs that are codes too, such as dev
_SCORE_WORDS = """
    bicleaner comet cometkiwi confidence cosine label labels labse laser margin quality score scores sim similarity
"""
_SCORES = frozenset(_SCORE_WORDS.split())  # words in the names of columns that judge a pair


def look_at_pairs(
    paths: Sequence[str],
    languages: Sequence[str] = (),
    columns: Sequence[str] = (),
    split: str = "train",
    where: str = ALL_ROWS,
) -> list[ParallelCorpus]:
    """The sources of pairs below the paths, by their first rows; prints a line on the form of each.

    Of several languages in one source each is paired with the one that has the most texts.

    Args:
        paths: CSV, TSV, Parquet, TMX, JSON (lines or an array), a zip of OPUS, line-aligned files, folders of these, a
            saved `datasets` folder, or a data set of the hub as org/name or org/name:config; packed or not.
        languages: codes, where neither names nor texts show them, or those that are wanted of several.
        columns: names of the columns that translate each other, where there are others.
        split: the one that is taken of folders and data sets that have several.
        where: a condition on another column, of tables that have it; none asks where a column of scores or labels says
            that not each row is a translation.

    Raises:
        ConfigError: something is ambiguous; names the key that settles it.
        DataError: a path is missing, or is no data.
    """
    return choose_pairs(find_first_rows(paths, split), languages, columns, where)


def choose_pairs(
    tables: Sequence[FirstRows], languages: Sequence[str] = (), columns: Sequence[str] = (), where: str = ALL_ROWS
) -> list[ParallelCorpus]:
    """As `look_at_pairs`, of first rows."""
    corpora = []
    for table in tables:
        chosen = choose_pair_columns(table, languages, columns)
        if condition := _condition(table, where):
            index = table.names.index(condition_of(condition)[0])
            table = replace(table, rows=[row for row in table.rows if fulfils(row[index], condition)])
            if table.is_whole and not table.rows:
                raise ConfigError(f"{table.title}: no row fulfils --where {where}.")
        say(_describe(table, chosen) + (f"; only rows with {condition}" if condition else ""))
        corpora += _corpora(table, chosen, condition)
    if not corpora:
        raise DataError("No pairs are given. Name a file, a folder or a data set.")
    if where not in ("", ALL_ROWS) and not any(corpus.where for corpus in corpora):
        raise ConfigError(f"--where {where}: no table has a column '{condition_of(where)[0]}'.")
    return corpora


def _condition(table: FirstRows, where: str) -> str | None:
    """The condition on the rows of a table, if it has the column.

    Raises:
        ConfigError: none is given, and a column of scores or labels has several values.
    """
    if where == ALL_ROWS:
        return None
    if where:
        return where if condition_of(where)[0] in table.names else None
    for index, name in enumerate(table.names):
        values = _numbers_in(table, index)
        if _is_score(name) and (len(values) > 1 or (values and not table.is_whole)):
            raise ConfigError(
                f"{table.title}: column {name} holds {values[0]:.3g} to {values[-1]:.3g}, so not each row may be a "
                f"translation. Say which rows are read: --where '{name}>={values[len(values) // 2]:.3g}', or --where "
                f"{ALL_ROWS}."
            )
    return None


def _numbers_in(table: FirstRows, place: int) -> list[float]:
    """The distinct numbers in a column, in order; none where a cell holds something else."""
    cells = [*filter(None, table.column(place))]
    numbers = [number for cell in cells if (number := number_of(cell)) is not None]
    return sorted({*numbers}) if len(numbers) == len(cells) else []


def _is_score(name: str) -> bool:
    return bool(_SCORES & {*re.split(r"[\W_]+", name.lower())})


def choose_scored_columns(table: FirstRows, in_one_language: bool = False) -> list[str]:
    """The two texts and the score of a table of scored pairs in one language (STS); none of a table of other things.

    The score is the only column of numbers without a header, else one that is called so. Texts whose languages differ,
    by the names of the file or its columns or by their words, are translations.

    Args:
        in_one_language: whether that is known already.
    """
    texts = [n for n in range(len(table.names)) if is_text(table.column(n))]
    pair = find_pair(table.names)
    texts = pair if len(texts) > 2 and {*pair} <= {*texts} else texts
    numbers = [n for n in range(len(table.names)) if len(_numbers_in(table, n)) > 1]
    scores = [n for n in numbers if _is_score(table.names[n])]
    if not scores and len(numbers) == 1 and table.names[0].isdecimal():
        scores = numbers
    if table.by_language or len(texts) != 2 or not scores:
        return []
    if not in_one_language:
        written = [code for code in codes_in_name(table.title) if code not in NO_LANGUAGES]
        codes = [_code_of(table, n) or identify(_texts(table, n)) for n in texts]
        if len(written) == 2 or (all(codes) and not is_alike(*codes)):
            return []
    return [table.names[n] for n in (*texts, scores[0])]


def _corpora(table: FirstRows, chosen: Chosen, where: str | None) -> Iterator[ParallelCorpus]:
    """A source for each two languages; of several, all with the one that has the most texts."""
    several = len(chosen.columns) > 2
    order = list(range(len(chosen.columns)))
    if several:
        order.sort(key=lambda n: (table.column(chosen.columns[n]).count(""), chosen.languages[n] != PIVOT))
    pivot, *others = order
    for other in sorted(others):
        both = (pivot, other)
        places = [chosen.columns[n] for n in both]
        names = (table.names[places[0]], table.names[places[1]])
        files = [table.paths[n] for n in places] if table.format == "moses" else table.paths
        yield ParallelCorpus(
            format=table.format,
            languages=(chosen.languages[both[0]], chosen.languages[both[1]]),
            paths=tuple(path if is_url(path) else absolute_path(path) for path in files),
            columns=names if table.format in WITH_COLUMNS else None,
            where=where,
            negatives=_negatives(table, chosen) if table.format in WITH_COLUMNS else (),
            skip_empty=several and table.format != "tmx",
        )


def _describe(table: FirstRows, chosen: Chosen) -> str:
    """The line on the form of a source."""
    named = [(table.names[n], code) for n, code in zip(chosen.columns, chosen.languages, strict=True)]
    listed = [name if name == code else f"{name} ({code})" for name, code in named]
    what = "languages" if table.by_language else "columns"
    negatives = _negatives(table, chosen)
    others = [name for n, name in enumerate(table.names) if n not in chosen.columns and name not in ("", *negatives)]
    left = [*others, *table.lists]
    title = table.title + (f" and {len(table.paths) - 1} more" if len(table.paths) > 1 else "")
    full = sum(all(row[n] for n in chosen.columns) for row in table.rows)
    count = f"{full:,} pair{'s' * (full != 1)}" if len(chosen.columns) == 2 else f"{len(table.rows):,} rows"
    pairs = f", {count}{'' if table.is_whole else ' or more'}" if table.rows else ""
    negative = f"; negatives {_listed(negatives)}" if negatives else ""
    aside = f"; left out: {list_some(left)}" if left else ""
    return f"{title}: {table.form}, {what} {_listed(listed)}{pairs}{negative}{aside}"


def _negatives(table: FirstRows, chosen: Chosen) -> tuple[str, ...]:
    """The other columns that are called by hard negatives and hold no numbers; none beside several languages."""
    if len(chosen.columns) > 2:
        return ()
    others = [n for n, name in enumerate(table.names) if is_negative(name) and n not in chosen.columns]
    return tuple(table.names[n] for n in others if is_text(table.column(n)) or not any(table.column(n)))


def read_pairs(
    corpus: ParallelCorpus, root: str | Path = ".", max_bad_fraction: float = MAX_BAD_FRACTION
) -> Iterator[tuple[str, str]]:
    """The two sides of each good pair of a corpus, streaming, without Ray.

    Raises:
      DataError: a file is missing or is no data, no pair is good, or, at the end, more than `max_bad_fraction` of the
        rows are bad.
    """
    good, bad = 0, Counter[str]()
    reader, paths = find_source(corpus, root)
    for record in read(reader, paths, corpus.languages, None, corpus.read_columns, corpus.skip_empty):
        if isinstance(record, Pair):
            good += 1
            yield record.texts
        elif isinstance(record, BadRow) and record.reason != BOTH_EMPTY:
            bad[record.reason] += 1
    if bad.total() > max_bad_fraction * (good + bad.total()):
        raise DataError(
            f"{corpus.paths[0]}: {bad.total():,} of {good + bad.total():,} rows cannot be used ({list_reasons(bad)})."
        )


# Files of pairs below the paths that a user names: folders, saved `datasets`, splits, and data sets of the hub.

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")
_FILE_SUFFIX = re.compile(
    r"\.(csv|tsv|txt|tab|jsonl?|parquet|arrow|tmx|xlf|xliff|sdlxliff|po|pot|xlsx|zip|tar|tgz|gz|bz2|zst|[a-z]{2,3})$",
    re.IGNORECASE,
)
BESIDE_DATA = re.compile(
    r"\.|(readme|licen[sc]e|copying|changelog|citation|notice|authors|manifest|checksums?|sha256sums?|md5sums?)\b"
    r"|.*\.(md|rst|ya?ml|html?|py|sh|pdf|lock|ids|xml|bib|log|toml)$|(dataset_infos?|dataset_dict|state)\.json$"
    r"|.*\.(mo|pot)$|__MACOSX$",
    re.IGNORECASE,
)
_SHARD = re.compile(r"\d{3,}(-of-\d{3,})?")


def find_first_rows(paths: Sequence[str], split: str = "train") -> list[FirstRows]:
    """Looks at each source below the paths.

    Args:
        paths: files, glob patterns, URLs, folders, saved `datasets` folders, or ids of data sets of the hub.
        split: the one that is taken of folders and data sets that have several.

    Raises:
        ConfigError: it is not clear which files belong together.
        DataError: a path is not there, or is no data.
    """
    tables: list[FirstRows] = []
    files: list[str] = []
    below: dict[str, str] = {}  # files of folders, which may hold others than pairs, and why they are left out
    for path in paths:
        if not is_url(path) and Path(path).is_dir():
            saved = find_saved(Path(path), split)
            tables += [look_at_table(saved.files, "arrow", "saved data set")] if saved else []
            below |= {} if saved else _files_below(Path(path), split)
        elif not Path(path).is_file() and _HUB_ID.fullmatch(path) and not _FILE_SUFFIX.search(path):
            name, _, configuration = path.partition(":")
            tables.append(
                look_at_table(fetch_dataset(name, configuration or None, split), "arrow", "data set of the hub")
            )
        else:
            files += expand(path)
    texts: list[str] = []
    first_error = None
    for together in _shards([*files, *(path for path, why in below.items() if not why)]):
        path, is_named = together[0], together[0] not in below
        try:
            first = look_at_file(path)
            if not is_named and first and first.rows and not first.by_language:
                texts_in = sum(is_text(first.column(n)) for n in range(len(first.names)))
                if texts_in + len(first.lists) < 2:  # a message names lists
                    raise DataError(f"{path}: it has no two columns of text (columns: {list_some(first.names)}).")
        except DataError as error:
            if is_named:
                raise
            first_error = first_error or error
            below |= dict.fromkeys(together, str(error).removeprefix(path).lstrip(":1234567890").strip(" ."))
            continue
        if first is None:
            texts += together
        else:
            tables.append(replace(first, paths=tuple(together)))
    if first_error and not tables and not texts:
        raise first_error
    sources = [*_joined(tables), *_text_groups(texts, below, bool(tables))]
    _say_left_out(below)
    return sources


def _say_left_out(files: Mapping[str, str]) -> None:
    """A line on the files of folders that are left out: how many for each reason, and some names."""
    reasons: dict[str, list[str]] = {}
    for path, why in files.items():
        if why:
            reasons.setdefault(re.split(r" \(|\. ", why)[0][:SHOWN_REASON], []).append(Path(path).name)
    listed = [f"{len(names):,} ({list_some(names, 3)}): {why}" for why, names in reasons.items()]
    if listed:
        say(f"Left out of the folder: {'; '.join(listed)}")


def _joined(tables: Sequence[FirstRows]) -> list[FirstRows]:
    """The same sources; files of translation programs that are in the same languages are one."""
    groups: dict[object, FirstRows] = {}
    for index, table in enumerate(tables):
        key = (table.format, table.names) if table.format in ("po", "xliff") else index
        if first := groups.get(key):
            rows = first.rows + table.rows
            is_whole = first.is_whole and table.is_whole and len(rows) <= ROWS
            table = replace(first, paths=first.paths + table.paths, rows=rows[:ROWS], is_whole=is_whole)
        groups[key] = table
    return list(groups.values())


def _shards(files: Sequence[str]) -> list[list[str]]:
    """Files whose names differ in a long number only, as `train-00000-of-00002.parquet`, together."""
    groups: dict[str, list[str]] = {}
    for path in dict.fromkeys(files):
        folder, _, name = path.rpartition("/")
        groups.setdefault(f"{folder}/{_SHARD.sub('#', name)}", []).append(path)
    return list(groups.values())


def _files_below(folder: Path, split: str) -> dict[str, str]:
    """The files of a folder that may hold pairs, and the reason for others: their names have another split.

    A file without a split in its name belongs to the wanted one.
    """
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(map(BESIDE_DATA.match, path.relative_to(folder).parts))
    ]
    if not files:
        raise DataError(f"{folder} is a folder without files of pairs. Check the path.")
    splits = {path: _split_of(path, folder) for path in files}
    named = list(dict.fromkeys(splits.values()))
    wanted = SPLITS.get(split, split) if "" in named else choose_split(str(folder), named, split)
    return {str(path): "" if split in ("", wanted) else f"of the split {split}" for path, split in splits.items()}


def _split_of(path: Path, folder: Path) -> str:
    """Of a file, by a word of its name or of the folders above: nothing if none is the name of a split."""
    words = [word.lower() for part in path.relative_to(folder).parts for word in re.split(r"[._\-]", part)]
    return next((SPLITS[word] for word in words if word in SPLITS), "")


def _text_groups(texts: Sequence[str], below: dict[str, str], has_others: bool) -> Iterator[FirstRows]:
    """Files of plain text by the common part of their names: the languages of one text together.

    Args:
        below: files of folders, of which those without a partner are left out where there are other sources; receives
            why.
        has_others: whether there are sources of other forms.

    Raises:
        ConfigError: it is not clear which of them translate each other.
    """
    groups: dict[str, dict[str, str]] = {}
    for path in texts:
        code, before = language_of_file(path)
        folder = os.path.dirname(path)
        group = groups.setdefault(f"{folder}/{before}" if code else path, {})
        if code in group:
            raise ConfigError(f"{group[code]} and {path} are both '{code}' by their names. Give one of them.")
        group[code or Path(path).name] = path
    alone = [name for name, group in groups.items() if len(group) == 1]
    if len(alone) == 2 and len(texts) == 2:
        first, second = (next(iter(groups[name].items())) for name in alone)
        names = (first[0], second[0]) if first[0] != second[0] else (first[1], second[1])
        yield look_at_texts({names[0]: first[1], names[1]: second[1]})
        return
    if (has_others or len(alone) < len(groups)) and all(next(iter(groups[name].values())) in below for name in alone):
        below |= {path: "plain text without a translation" for name in alone for path in groups.pop(name).values()}
        alone = []
    if alone:
        files = [next(iter(groups[name].values())) for name in alone]
        raise ConfigError(
            f"{' and '.join(files[:3])}: plain text, and no file is its translation by name. Give two files, call them "
            "alike but for the language (x.en, x.de), or give a table with a column for each language."
        )
    yield from (look_at_texts(group) for group in groups.values())


# Chooses the columns of a table that translate each other, and their languages; asks where this is not clear.

IDENTIFIED = 300  # texts of a column by which its language is found
MAX_EQUAL = 0.5  # of the rows: those whose two texts are the same


@dataclass(frozen=True)
class Chosen:
    """The columns of a source that translate each other, two or more, as places, and their languages."""

    columns: list[int]
    languages: list[str]


def choose_pair_columns(table: FirstRows, languages: Sequence[str] = (), columns: Sequence[str] = ()) -> Chosen:
    """The columns that hold translations: those that are named, or called by languages, or the only two of text.

    Args:
        languages: of the columns, where they are known; in the columns' order where these do not show it.
        columns: their names, where they are known.

    Raises:
        ConfigError: it is not clear; names the key that settles it.
    """
    codes = [check_language(code) for code in languages]
    if table.rows:
        places = _named(table, columns) if columns else _candidates(table, codes)
    else:
        places = list(range(len(table.names)))
    chosen = _languages(table, places, codes, is_named=bool(columns))
    _check(table, chosen)
    return chosen


def _named(table: FirstRows, columns: Sequence[str]) -> list[int]:
    if len(columns) < 2 or len(set(columns)) < len(columns):
        raise ConfigError(f"--columns names {', '.join(columns)}; name two different columns, such as source,target.")
    for column in columns:
        if column not in table.names:
            raise ConfigError(
                f"{table.title} has no column '{column}'; its columns are {list_some(table.names)}{_lists(table)}."
            )
    return [table.names.index(column) for column in columns]


def _lists(table: FirstRows) -> str:
    return f"; lists, of which each text needs a row: {list_some(table.lists)}" if table.lists else ""


def _candidates(table: FirstRows, codes: Sequence[str]) -> list[int]:
    """Columns of text with a language or a pair's word as name, or all columns of text if they are two."""
    texts = [n for n in range(len(table.names)) if is_text(table.column(n)) and not is_negative(table.names[n])]
    if table.by_language:
        return texts
    named = [n for n in range(len(table.names)) if _code_of(table, n) and (n in texts or not any(table.column(n)))]
    if codes:
        named = [n for n in named if any(table.column(n)) or _code_of(table, n) in codes]
    if empty := [table.names[n] for n in named if not any(table.column(n))]:
        raise ConfigError(
            f"{table.title}: column {empty[0]} is empty in the first {len(table.rows):,} rows. Fill it, or name two "
            "others with --languages or --columns."
        )
    pair = [n for n in find_pair(table.names) if n in texts]
    if len(pair) == 2 and len([n for n in named if n not in pair]) < 2:
        return pair
    if len(named) > 1:
        return named
    if len(texts) < 2:
        held = f"only column {table.names[texts[0]]} holds text" if texts else "no column holds text"
        raise ConfigError(
            f"{table.title}: {held} (columns: {list_some(table.names)}{_lists(table)}), and pairs need two. Name them "
            "with --columns."
        )
    if len(texts) > 2 and len(texts) != len(codes):
        raise ConfigError(
            f"{table.title}: columns {_listed([table.names[n] for n in texts])} hold text. Say which two translate "
            f"each other: --columns {table.names[texts[0]]},{table.names[texts[1]]}"
        )
    return texts


def _code_of(table: FirstRows, place: int) -> str:
    """The language that a column is called by.

    A code of three letters may be a word (`bar` is Bavarian): it is a code where another column is called by one of two
    letters, or each column of text by a language.
    """
    code = language_of_name(table.names[place])
    if code == "id" and sum(" " in row[place] for row in table.rows) * 2 < len(table.rows):
        return ""  # not Indonesian
    if table.by_language or len(code.partition("-")[0]) != 3:
        return code
    others = [language_of_name(name) for n, name in enumerate(table.names) if is_text(table.column(n))]
    return code if all(others) or any(len(other.partition("-")[0]) == 2 for other in others) else ""


def _languages(table: FirstRows, places: list[int], codes: Sequence[str], is_named: bool) -> Chosen:
    """The languages of the columns; requested ones stay.

    A code that is written holds: `codes` before names of columns, these before the file's name. Only languages
    that none of them gives are identified.
    """
    names = [table.names[n] for n in places]
    paired = bool(find_pair(names)) and len(places) == 2 and not table.by_language
    by_name = ["" if paired else _code_of(table, n) for n in places]
    bare = [without_region(code) if code else "" for code in by_name]
    by_name = bare if len(set(bare)) == len(bare) else by_name
    if codes and all(code in by_name or code in bare for code in codes):
        in_order = [(by_name if code in by_name else bare).index(code) for code in codes]
        return Chosen([places[n] for n in in_order], list(codes))
    rest = [code for code in codes if code not in by_name]
    free = [n for n, code in enumerate(by_name) if code not in codes and (is_named or not code)]
    by_text = {n: identify(_texts(table, places[n])) for n in free}
    if len(codes) == len(places) and len(free) == len(rest):
        filled = dict(zip(free, _in_order(rest, [*by_text.values()]), strict=True))
        return Chosen(places, [filled.get(n, code) for n, code in enumerate(by_name)])
    codes_found = [code or by_text.get(n, "") for n, code in enumerate(by_name)]
    written = codes_in_name(table.title)
    if len(written) == len(places) == len(free) == 2 and not codes:
        written = _in_order(written, codes_found)
        is_word = any(codes_found) and not any(map(is_alike, codes_found, written))
        codes_found = codes_found if is_word else written
    there = ", ".join(
        name if name == code else f"{name} ({code or 'unknown'})" for name, code in zip(names, codes_found, strict=True)
    )
    double = [code for code, count in Counter(filter(None, codes_found)).items() if count > 1]
    if codes:
        fault = f"none is in '{next((code for code in codes if code not in codes_found), codes[0])}'"
    elif not all(codes_found):
        fault = "not every language can be told by name or text"
    elif double and not any(map(is_negative, table.names)):
        fault = f"two are in '{double[0]}'"
    else:
        return Chosen(places, codes_found)
    hint = "" if is_installed() else f", or install {PACKAGE} (pip install 'xalign-ray[langid]')"
    raise ConfigError(
        f"{table.title} has {there}: {fault}. Name two columns with --columns, or their languages in this order with "
        f"--languages{hint}."
    )


def _in_order(codes: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Two codes in the order of the texts of which these are the languages; as they are written where that is open."""
    return max(list(codes), list(codes[::-1]), key=lambda order: sum(map(is_alike, texts, order)))


def _check(table: FirstRows, found: Chosen) -> None:
    """Refuses texts that are copies of each other; warns of texts that read like another language than their code."""
    if len(found.columns) < 2:
        raise ConfigError(
            f"{table.title} holds one language only ({', '.join(found.languages) or 'none'}); pairs need two."
        )
    if not table.rows:
        if table.format != "opus":
            raise ConfigError(f"{table.title} has no rows below its header ({list_some(table.names)}).")
        return
    first, *others = found.columns
    for other in others:
        rows = [(row[first], row[other]) for row in table.rows if row[first] and row[other]]
        names = f"{table.names[first]} and {table.names[other]}"
        if not rows:
            if len(found.columns) == 2:
                raise ConfigError(f"{table.title}: no row of the first {len(table.rows):,} has both {names}.")
            continue
        if (equal := sum(a.casefold() == b.casefold() for a, b in rows)) > MAX_EQUAL * len(rows):
            raise ConfigError(
                f"{table.title}: {names} are the same in {equal:,} of {len(rows):,} rows, so one is no translation of "
                "the other. Name other columns with --columns, or give another file."
            )
    for column, code in zip(found.columns, found.languages, strict=True):
        if (text := identify(_texts(table, column))) and not is_alike(text, code):
            say(f"{table.title}: column {table.names[column]} reads like {text}: taken as {code}, as named")


def _texts(table: FirstRows, place: int) -> list[str]:
    return [*filter(None, table.column(place))][:IDENTIFIED]


def _listed(names: Sequence[str]) -> str:
    return list_some(names) if len(names) > MANY else " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
