"""Finds files of pairs, their form by their first rows, and the columns that translate each other; reads them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.config.language_codes import check_language
from xalign_ray.config.sources import WITH_COLUMNS, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.columns import (
    FirstRows,
    choose_columns,
    condition_of,
    fulfils,
    list_names,
)
from xalign_ray.sources.first_rows import look_at_file, look_at_table, look_at_texts
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.hub import SPLITS, choose_split, fetch_dataset, find_saved, is_hub_id
from xalign_ray.sources.language_id import (
    PACKAGE,
    codes_in_name,
    find_pair,
    identify,
    is_alike,
    is_installed,
    is_negative,
    language_of_file,
    without_region,
)
from xalign_ray.sources.open import expand
from xalign_ray.sources.records import BOTH_EMPTY, BadRow, Pair, list_reasons, list_some
from xalign_ray.sources.tables import ROWS
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import absolute_path, is_url

MAX_BAD_FRACTION = 0.01  # of rows that are read without a recipe
SHOWN_REASON = 100  # characters
PIVOT = "en"  # among languages that have as many texts
ALL_ROWS = "all"  # what stands for a condition that each row fulfils
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
    corpora: list[ParallelCorpus] = []
    codes = [check_language(code) for code in languages]
    for table in tables:
        if not table.rows:
            places = [*range(len(table.names))]
        else:
            places = _find_named(table, columns) if columns else choose_columns(table, codes)
        chosen = _choose_languages(table, places, codes, is_named=bool(columns))
        _check_languages(table, chosen, codes)
        _check_texts(table, chosen)
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


def _negatives(table: FirstRows, chosen: Mapping[int, str]) -> tuple[str, ...]:
    """The other columns that are called by hard negatives and hold no numbers; none beside several languages."""
    return tuple(
        name
        for index, name in enumerate(table.names if len(chosen) == 2 else ())
        if is_negative(name) and index not in chosen and not table.numbers(index)
    )


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
        values = table.numbers(index)
        if _is_score(name) and (len(values) > 1 or (values and not table.is_whole)):
            raise ConfigError(
                f"{table.title}: column {name} holds {values[0]:.3g} to {values[-1]:.3g}, so not each row may be a "
                f"translation. Say which rows are read: --where '{name}>={values[len(values) // 2]:.3g}', or --where "
                f"{ALL_ROWS}."
            )
    return None


def _is_score(name: str) -> bool:
    return bool(_SCORES & {*re.split(r"[\W_]+", name.lower())})


def _describe(table: FirstRows, chosen: Mapping[int, str]) -> str:
    """The line on the form of a source."""
    negatives = _negatives(table, chosen)
    named = [(table.names[index], code) for index, code in chosen.items()]
    listed = list_names([name if name == code else f"{name} ({code})" for name, code in named])
    others = [name for index, name in enumerate(table.names) if index not in chosen and name not in ("", *negatives)]
    left = [*others, *table.lists]
    title = table.title + (f" and {len(table.paths) - 1} more" if len(table.paths) > 1 else "")
    full = sum(all(row[index] for index in chosen) for row in table.rows)
    count = f"{full:,} pair{'s' * (full != 1)}" if len(chosen) == 2 else f"{len(table.rows):,} rows"
    pairs = f", {count}{'' if table.is_whole else ' or more'}" if table.rows else ""
    negative = f"; negatives {list_names(negatives)}" if negatives else ""
    aside = f"; left out: {list_some(left)}" if left else ""
    return f"{title}: {table.form}, {'languages' if table.by_language else 'columns'} {listed}{pairs}{negative}{aside}"


def _corpora(table: FirstRows, chosen: Mapping[int, str], where: str | None) -> Iterator[ParallelCorpus]:
    """A source for each two languages; of several, all with the one that has the most texts."""
    has_columns, several = table.format in WITH_COLUMNS, len(chosen) > 2
    pivot = next(iter(chosen))
    if several:
        pivot = min(chosen, key=lambda index: (table.column(index).count(""), chosen[index] != PIVOT))
    for other in chosen:
        if other != pivot:
            files = [table.paths[pivot], table.paths[other]] if table.format == "moses" else table.paths
            yield ParallelCorpus(
                format=table.format,
                languages=(chosen[pivot], chosen[other]),
                paths=tuple(path if is_url(path) else absolute_path(path) for path in files),
                columns=(table.names[pivot], table.names[other]) if has_columns else None,
                where=where,
                negatives=_negatives(table, chosen) if has_columns else (),
                skip_empty=several and table.format != "tmx",
            )


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
            if saved := find_saved(Path(path), split):
                tables.append(look_at_table(saved.files, "arrow", "saved data set"))
            else:
                below |= _files_below(Path(path), split)
        elif not Path(path).is_file() and is_hub_id(path.partition(":")[0]) and not _FILE_SUFFIX.search(path):
            name, _, configuration = path.partition(":")
            fetched = fetch_dataset(name, configuration or None, split)
            tables.append(look_at_table(fetched, "arrow", "data set of the hub"))
        else:
            files += expand(path)
    texts: list[str] = []
    first_error = None
    for together in _shards([*files, *(path for path, why in below.items() if not why)]):
        path = together[0]
        try:
            first = look_at_file(path)
            if first and path in below and not first.may_hold_pairs:
                raise DataError(f"{path}: it has no two columns of text (columns: {list_some(first.names)}).")
            tables += [replace(first, paths=tuple(together))] if first else []
            texts += [] if first else together
        except DataError as error:
            if path not in below:
                raise
            first_error = first_error or error
            below |= dict.fromkeys(together, str(error).removeprefix(path).lstrip(":1234567890").strip(" ."))
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
    splits: dict[Path, str] = {}  # by a word of the names of files and of the folders above
    for path in files:
        words = [word.lower() for part in path.relative_to(folder).parts for word in re.split(r"[._\-]", part)]
        splits[path] = next((SPLITS[word] for word in words if word in SPLITS), "")
    named = list(dict.fromkeys(splits.values()))
    wanted = SPLITS.get(split, split) if "" in named else choose_split(str(folder), named, split)
    return {str(path): "" if split in ("", wanted) else f"of the split {split}" for path, split in splits.items()}


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
    alone = [path for group in groups.values() if len(group) == 1 for path in group.values()]
    if len(alone) == len(texts) == 2:
        names = [next(iter(group)) for group in groups.values()]
        groups = {"": dict(zip(names if names[0] != names[1] else alone, alone, strict=True))}
    elif alone and (has_others or len(alone) < len(texts)) and {*alone} <= {*below}:
        below |= dict.fromkeys(alone, "plain text without a translation")
    elif alone:
        raise ConfigError(
            f"{' and '.join(alone[:3])}: plain text, and no file is its translation by name. Give two files, call them "
            "alike but for the language (x.en, x.de), or give a table with a column for each language."
        )
    yield from (look_at_texts(group) for group in groups.values() if len(group) > 1)


# The languages of columns that translate each other; asks where these are not clear.

IDENTIFIED = 300  # texts of a column by which its language is found
MAX_EQUAL = 0.5  # of the rows: those whose two texts are the same


def _find_named(table: FirstRows, columns: Sequence[str]) -> list[int]:
    if len(columns) < 2 or len(set(columns)) < len(columns):
        raise ConfigError(f"--columns names {', '.join(columns)}; name two different columns, such as source,target.")
    if absent := [column for column in columns if column not in table.names]:
        raise ConfigError(f"{table.title} has no column '{absent[0]}'; its columns are {table.listed}.")
    return [table.names.index(column) for column in columns]


def _choose_languages(
    table: FirstRows, places: Sequence[int], wanted: Sequence[str] = (), is_named: bool = False
) -> dict[int, str]:
    """The languages of columns, or of the wanted ones among them in that order; empty where one is not known.

    A code that is written holds: `wanted` before names of columns, these before the file's name. Only languages
    that none of them gives are identified.

    Args:
        is_named: whether the user names the columns; their names need not be their languages then.
    """
    paired = len(places) == 2 and not table.by_language and find_pair([table.names[index] for index in places])
    by_name = ["" if paired else table.codes[index] for index in places]
    bare = [without_region(code) if code else "" for code in by_name]
    by_name = bare if len(set(bare)) == len(bare) else by_name
    if wanted and all(code in (*by_name, *bare) for code in wanted):
        return {places[(by_name if code in by_name else bare).index(code)]: code for code in wanted}
    free = [n for n, code in enumerate(by_name) if code not in wanted and (is_named or not code)]
    by_text = [identify(_first_texts(table, places[n])) for n in free]
    codes = dict(enumerate(by_name)) | {n: by_name[n] or text for n, text in zip(free, by_text, strict=True)}
    written = [code for code in wanted if code not in by_name] if wanted else codes_in_name(table.title)
    if len(written) == len(free) and len(places) == len(wanted or free):
        written = max(written, written[::-1], key=lambda order: sum(map(is_alike, by_text, order)))
        # The texts show that what looks like codes in a file's name are other words.
        is_word = not wanted and any(codes.values()) and not any(map(is_alike, codes.values(), written))
        codes |= {} if is_word else dict(zip(free, written, strict=True))
    return {index: codes[n] for n, index in enumerate(places)}


def _check_languages(table: FirstRows, chosen: Mapping[int, str], wanted: Sequence[str]) -> None:
    """Refuses languages that are not known or not there, or two columns in one."""
    codes = [*chosen.values()]
    double = [code for code, count in Counter(codes).items() if count > 1]
    if absent := [code for code in wanted if code not in codes]:
        fault = f"none is in '{absent[0]}'"
    elif not all(codes):
        fault = "not every language can be told by name or text"
    elif double and not wanted and not any(map(is_negative, table.names)):
        fault = f"two are in '{double[0]}'"
    else:
        return
    named = [(table.names[index], code) for index, code in chosen.items()]
    there = ", ".join(name if name == code else f"{name} ({code or 'unknown'})" for name, code in named)
    hint = "" if is_installed() else f", or install {PACKAGE} (pip install 'xalign-ray[langid]')"
    raise ConfigError(
        f"{table.title} has {there}: {fault}. Name two columns with --columns, or their languages in this order with "
        f"--languages{hint}."
    )


def _check_texts(table: FirstRows, chosen: Mapping[int, str]) -> None:
    """Refuses texts that are copies of each other; warns of texts that read like another language than their code."""
    if len(chosen) < 2:
        raise ConfigError(
            f"{table.title} holds one language only ({', '.join(chosen.values()) or 'none'}); pairs need two."
        )
    if not table.rows and table.format != "opus":
        raise ConfigError(f"{table.title} has no rows below its header ({list_some(table.names)}).")
    first, *others = chosen
    for other in others if table.rows else ():
        rows = [(row[first], row[other]) for row in table.rows if row[first] and row[other]]
        names = f"{table.names[first]} and {table.names[other]}"
        if not rows and len(chosen) == 2:
            raise ConfigError(f"{table.title}: no row of the first {len(table.rows):,} has both {names}.")
        if (equal := sum(a.casefold() == b.casefold() for a, b in rows)) > MAX_EQUAL * len(rows):
            raise ConfigError(
                f"{table.title}: {names} are the same in {equal:,} of {len(rows):,} rows, so one is no translation of "
                "the other. Name other columns with --columns, or give another file."
            )
    for index, code in chosen.items():
        if (text := identify(_first_texts(table, index))) and not is_alike(text, code):
            say(f"{table.title}: column {table.names[index]} reads like {text}: taken as {code}, as named")


def _first_texts(table: FirstRows, index: int) -> list[str]:
    return [*filter(None, table.column(index))][:IDENTIFIED]


def choose_scored_columns(table: FirstRows, in_one_language: bool = False) -> list[str]:
    """The two texts and the score of a table of scored pairs in one language (STS); none of a table of other things.

    The score is the only column of numbers without a header, else one that is called so. Texts whose languages differ,
    by the names of the file or its columns or by their words, are translations.

    Args:
        in_one_language: whether that is known already.
    """
    try:
        places = choose_columns(table)
    except ConfigError:
        return []
    numbers = [index for index in range(len(table.names)) if len(table.numbers(index)) > 1]
    scores = [index for index in numbers if _is_score(table.names[index])]
    scores = scores or (numbers if len(numbers) == 1 and not table.has_header else [])
    if table.by_language or len(places) != 2 or not scores:
        return []
    first, second = ("", "") if in_one_language else _choose_languages(table, places).values()
    if first and second and not is_alike(first, second):
        return []
    return [table.names[index] for index in (*places, scores[0])]
