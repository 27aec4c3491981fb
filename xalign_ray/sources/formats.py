"""The formats by name, and the one way to read a source of any format, whole or part by part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import take_language
from xalign_ray.config.sources import HF, Corpus, Dictionary, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.columnar import (
    TEXT,
    check_columns,
    read_arrow,
    read_json_array,
    read_jsonl,
    read_parquet,
    split_parquet,
)
from xalign_ray.sources.hub import FoundFiles, find_split, find_split_of_each, is_hub_id
from xalign_ray.sources.open import (
    NOT_UTF8,
    Chunks,
    check_lines,
    expand,
    is_folder,
    join_path,
    open_bytes,
    read_as,
    read_lines,
)
from xalign_ray.sources.records import (
    ONE_EMPTY,
    WHOLE,
    BadRow,
    Document,
    Entry,
    Noted,
    Pair,
    Part,
    Record,
    Skipped,
    list_reasons,
    list_some,
    one_part,
    one_part_a_file,
    split_at_lines,
    split_in_parallel,
)
from xalign_ray.sources.stored import read_stored
from xalign_ray.sources.table_pairs import read_csv, read_workbook, split_csv
from xalign_ray.sources.terms import (
    read_csv_terms,
    read_kaikki,
    read_muse,
    read_panlex,
    read_xlsx_terms,
)
from xalign_ray.sources.text import (
    check_links,
    is_zip,
    pair_documents,
    read_conllu,
    read_moses,
    read_opus,
    read_text,
    split_conllu,
    split_text,
)
from xalign_ray.sources.translation_files import read_po, read_tmx, read_xliff
from xalign_ray.sources.wikipedia import read_wikipedia, split_dumps
from xalign_ray.work.file_checks import check_plain
from xalign_ray.work.storage import is_url


@dataclass(frozen=True, slots=True)
class Format:
    """A format family: how a part is read, how a source is split, and how many languages and paths it takes."""

    read: Callable[[Part, Sequence[str]], Iterator[Record | Skipped | Noted]]
    split: Callable[[str, Sequence[str]], list[Part]]
    holds: str
    languages: tuple[int, ...]
    paths: tuple[int, ...] = ()  # the allowed numbers; () is one or more
    content: Literal["sentences", "text", "json", "other"] = "text"  # what lines its files hold; other is not of lines
    in_zip: bool = False  # whether files of lines may lie in a zip
    check: Callable[[Sequence[str]], None] | None = None  # what only its files together tell


FORMATS: dict[str, Format] = {
    "wikipedia": Format(read_wikipedia, split_dumps, "documents", (1,), content="other"),
    "text": Format(read_text, split_text, "documents", (1,), content="sentences"),
    "jsonl": Format(read_jsonl, split_at_lines, "documents", (1,), content="json"),
    "json": Format(read_json_array, one_part_a_file, "documents", (1,), content="other"),
    "csv_text": Format(read_csv, split_csv, "documents", (1,)),
    "parquet": Format(read_parquet, split_parquet, "documents", (1,), content="other"),
    "arrow": Format(read_arrow, one_part_a_file, "documents", (1,), content="other"),
    "conllu": Format(read_conllu, split_conllu, "documents", (1,)),
    "moses": Format(read_moses, split_in_parallel, "pairs", (2,), (2, 3), content="sentences", check=check_links),
    "tsv": Format(read_csv, split_csv, "pairs", (2,)),
    "jsonl_pairs": Format(read_jsonl, split_at_lines, "pairs", (2,), content="json"),
    "csv": Format(read_csv, split_csv, "pairs", (2,)),
    "json_pairs": Format(read_json_array, one_part_a_file, "pairs", (2,), content="other"),
    "parquet_pairs": Format(read_parquet, split_parquet, "pairs", (2,), content="other"),
    "arrow_pairs": Format(read_arrow, one_part_a_file, "pairs", (2,), content="other"),
    "tmx": Format(read_tmx, one_part_a_file, "pairs", (2,), content="other"),
    "xliff": Format(read_xliff, one_part_a_file, "pairs", (2,), content="other"),
    "po": Format(read_po, one_part_a_file, "pairs", (2,), content="other"),
    "xlsx": Format(read_workbook, one_part_a_file, "pairs", (2,), content="other"),
    "opus": Format(read_opus, one_part_a_file, "pairs", (2,), content="other"),
    "muse": Format(read_muse, one_part_a_file, "entries", (2,), content="text", in_zip=True),
    "tsv_terms": Format(read_csv_terms, one_part_a_file, "entries", (2,), content="text", in_zip=True),
    "csv_terms": Format(read_csv_terms, one_part_a_file, "entries", (2,), content="text", in_zip=True),
    "xlsx_terms": Format(read_xlsx_terms, one_part_a_file, "entries", (2,), content="other"),
    "kaikki": Format(read_kaikki, one_part_a_file, "entries", (2,), content="json", in_zip=True),
    "panlex": Format(read_panlex, one_part, "entries", (2,), content="other"),
}


def _side_by_side(reader: str) -> Format:
    """Pairs of two files of text, one a language: row i of both, as the reader of one language reads it."""

    def read_both(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
        columns = part.columns or (None, None)
        if len(columns) > 2:
            raise ConfigError(
                f"{part.paths[0]}: where is of tables that hold both languages, and here each has its own."
            )
        sides = [
            FORMATS[reader].read(Part(reader, (path,), (WHOLE,), columns=(name,) if name else None), (code,))
            for path, name, code in zip(part.paths, columns, languages, strict=True)
        ]
        yield from pair_documents(sides, part.paths, languages)

    return Format(read_both, one_part, "pairs", (2,), (2,), content="other")


SIDE_BY_SIDE = "_side_by_side"
_OF_TWO_FILES = {
    reader + SIDE_BY_SIDE: _side_by_side(reader) for reader in ("parquet", "arrow", "jsonl", "json", "csv_text", "text")
}  # that a recipe does not name

# The readers of a Hugging Face data set's files by their form: of text, and of pairs.
_OF_HF = {
    "parquet": ("parquet", "parquet_pairs"),
    "arrow": ("arrow", "arrow_pairs"),
    "json": ("jsonl", "jsonl_pairs"),
    "csv": ("csv_text", "csv"),
    "text": ("text", ""),
}
SHOWN = 120  # characters of a row that a message shows
NOTED = "noted: "
NO_TRANSLATION = "no translation"
_KINDS: dict[type, str] = {Document: "document", Pair: "pair", Entry: "entry", BadRow: "bad_row"}


def read(
    format: str,  # noqa: A002
    paths: Sequence[str],
    languages: Sequence[str],
    skipped: Counter[str] | None = None,
    columns: Sequence[str] | None = None,
    skip_empty: bool = False,
) -> Iterator[Record]:
    """All records of a source, streaming; `skipped` receives counts of what was left out on purpose, by reason.

    Args:
      columns: where a document or the two sides of a pair stand, as Corpus and ParallelCorpus name them; `skip_empty`
        is as in the latter.

    Raises:
      ConfigError: unknown format or language, wrong number of languages or paths; at the call.
      DataError: a path is missing (at the call); the source yields no good record (at its end).
      BrokenFileError: the rest of a file cannot be read.
    """
    codes = check_languages(format, languages)
    named = [
        replace(part, columns=tuple(columns) if columns else None, skip_empty=skip_empty)
        for part in parts(format, paths, columns)
    ]
    return _read_all(named, codes, skipped)


def _read_all(todo: Sequence[Part], languages: Sequence[str], skipped: Counter[str] | None) -> Iterator[Record]:
    good, bad = 0, Counter[str]()
    for part in todo:
        for record in read_part(part, languages, skipped):
            if isinstance(record, BadRow):
                bad[record.reason] += 1
            else:
                good += 1
            yield record
    if not good:
        raise DataError(explain_no_good_row(todo, bad))


def read_part(
    part: Part,
    languages: Sequence[str],
    skipped: Counter[str] | None = None,
) -> Iterator[Record]:
    """The records of one part; the parts of a source together yield what `read` yields, in the same order.

    `languages` are as check_languages returns them. A part without records is no error: see explain_empty.

    Raises:
      BrokenFileError: the rest of a file cannot be read.
    """
    for record in read_stored(part, languages) if part.text else parse(part, languages):
        if part.skip_empty and isinstance(record, BadRow) and record.reason == ONE_EMPTY:
            record = Skipped(NO_TRANSLATION)
        if isinstance(record, Skipped | Noted):
            if skipped is not None:
                skipped[NOTED + record.what if isinstance(record, Noted) else record.reason] += record.count
        else:
            yield record


def parse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """What the reader of a part's format makes of its files."""
    assert not part.beside, "columns stand beside text that is parsed"
    return _find_format(part.format).read(part, languages)


def parts(format: str, paths: Sequence[str], columns: Sequence[str] | None = None) -> list[Part]:  # noqa: A002
    """Cuts a source into units of work: a part a file; files of lines, Parquet and dumps of over 64 MB into several.

    Paths may be glob patterns (sorted by name) and URLs. Large files of lines that are not packed are read once, to
    number their lines.

    Raises:
      ConfigError: unknown format, or a number of paths that it does not take.
      DataError: a path is missing, or is no plain file of the format's kind, as far as its beginning tells.
    """
    entry = _find_format(format)
    found = find_files(paths)
    if entry.paths and len(found) not in entry.paths:
        allowed = " or ".join(map(str, entry.paths))
        raise ConfigError(f"format '{format}' takes {allowed} paths, not {len(found)}: {', '.join(found) or 'none'}.")
    check_contents(format, found, columns)
    return entry.split(format, found)


def check_contents(format: str, files: Sequence[str], columns: Sequence[str] | None = None) -> None:  # noqa: A002
    """Looks at the first bytes of files, and for the columns of those of documents that say theirs.

    Raises:
      DataError: one is no plain file of the format's kind, or has no such column.
    """
    entry = _find_format(format)
    for path in files:
        if format in ("parquet", "arrow"):
            check_columns(format, path, columns or (TEXT,))
        elif entry.content == "other" or (entry.in_zip and is_zip(path)):
            open_bytes(path).close()
        else:
            check_lines(path, json_lines=entry.content == "json", sentences=entry.content == "sentences")
    if entry.check:
        entry.check(files)


def find_files(paths: Sequence[str]) -> list[str]:
    """The files that paths, URLs and glob patterns of either name, patterns in sorted order.

    Raises:
      DataError: a path or pattern names nothing, a folder, or what is no plain file.
    """
    found = [match for path in paths for match in expand(path)]
    if folders := [path for path in found if is_folder(path)]:
        raise DataError(f"{folders[0]} is a folder. Name the files in it, for example {folders[0].rstrip('/')}/*.")
    for path in found:
        if not is_url(path):
            check_plain(path)
    return found


def find_source(source: Corpus | ParallelCorpus | Dictionary, root: str | Path = ".") -> tuple[str, list[str]]:
    """The reader of a source and its files; those of a Hugging Face data set are found by their split.

    Raises:
      DataError: a path names nothing, a folder, or what is no plain file; a data set is not there or out of reach.
      ConfigError: a data set has no such configuration or split.
    """
    paths = [join_path(str(root), path) for path in source.paths]
    if isinstance(source, Dictionary) or source.format != HF:
        return source.reader, find_files(paths)
    written = source.paths[0]
    name = written if is_hub_id(written) and not is_folder(paths[0]) else paths[0]
    languages = (source.language,) if isinstance(source, Corpus) else source.languages
    return find_split_source([name], languages, source.config, source.split, source.revision)


def read_together(format: str, files: Sequence[str]) -> list[tuple[str, ...]]:  # noqa: A002
    """The files of a source that are read as one: all, of a format that takes a number of them, else each."""
    return [tuple(files)] if _find_format(format).paths else [(file,) for file in files]


def find_split_source(
    paths: Sequence[str], languages: Sequence[str], config: str | None, split: str, revision: str | None
) -> tuple[str, list[str]]:
    """As find_source, of one Hugging Face data set: a folder, or an id of the hub."""
    if len(paths) != 1:
        raise ConfigError(f"format '{HF}' takes one path, a folder or an id of the hub, not {len(paths)}.")
    codes = check_languages(HF, languages)
    if len(codes) == 2 and not config and (each := find_split_of_each(paths[0], codes, split, revision)):
        found = [_reader_of(paths[0], one, 1) for one in each]
        if len({reader for reader, _ in found}) > 1:
            raise DataError(f"{paths[0]}: the files of {codes[0]} and {codes[1]} are of different forms.")
        return found[0][0] + SIDE_BY_SIDE, [file for _, files in found for file in files]
    return _reader_of(paths[0], find_split(paths[0], codes, config, split, revision), len(codes))


def _reader_of(name: str, found: FoundFiles, languages: int) -> tuple[str, list[str]]:
    reader = _OF_HF[found.kind][languages - 1]
    if not reader:
        raise DataError(f"{name} is plain text, a line a row, and pairs need two columns.")
    if found.kind == "json" and next(iter(Chunks(found.files[0])), b"").lstrip().startswith(b"["):
        reader = {"jsonl": "json", "jsonl_pairs": "json_pairs"}[reader]
    return reader, found.files


def check_languages(format: str, languages: Sequence[str]) -> tuple[str, ...]:  # noqa: A002
    """The canonical codes of a source's languages.

    Raises:
      ConfigError: no code, the same language twice, or a number of languages that the format does not take.
    """
    taken = (1, 2) if format == HF else _find_format(format).languages
    codes = tuple(take_language(code) for code in languages)
    if len(codes) not in taken:
        allowed = " or ".join(map(str, taken))
        given = ", ".join(codes) or "none"
        raise ConfigError(f"format '{format}' takes {allowed} language{'s' * (allowed != '1')}, not {given}.")
    if len(set(codes)) < len(codes):
        raise ConfigError(f"format '{format}' takes two different languages, not {', '.join(languages)}.")
    return codes


def explain_empty(todo: Sequence[Part]) -> str:
    """The sentence for a source whose parts all yielded nothing."""
    files = list(dict.fromkeys(path for part in todo for path in part.paths))
    holds = _find_format(todo[0].format).holds if todo else "documents"
    named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    verb = "holds" if len(files) == 1 else "hold"
    return f"{named or 'The source'} {verb} no {holds}. Check that it is the right file and that the format fits."


def explain_no_good_row(todo: Sequence[Part], bad: Mapping[str, int]) -> str:
    """The sentence for a source of which no row is good: why its rows were set aside, and what the first looks like."""
    if not bad:
        return explain_empty(todo)
    files = list(dict.fromkeys(path for part in todo for path in part.paths))
    named = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return (
        f"{named}: no row can be read as format {todo[0].format}. All {sum(bad.values()):,} were set aside "
        f"({list_reasons(bad)}).{_first_row(todo[0])} Check that the format fits."
    )


def _first_row(part: Part) -> str:
    """What the first row of a part looks like: the keys of its object, or its columns."""
    content = _find_format(part.format).content
    if content == "other" or is_zip(part.paths[0]):
        return ""
    lines = read_lines(part.paths[0], part.spans[0], part.first_line, json_lines=content == "json")
    comment = "#" if part.format == "conllu" else "\0"
    strange, text = 0, ""
    for line in lines:
        strange = strange or (line.number if line.fault == NOT_UTF8 else 0)
        if line.text.strip() and not line.text.startswith(comment):
            text = line.text
            break
    if not text and strange:
        seen, name = read_as(part.paths[0], strange), Path(part.paths[0]).name
        return f" Line {strange} is not UTF-8{seen}. Convert it: iconv -f ENCODING -t UTF-8 {name}."
    if not text:
        return ""
    try:
        value = json.loads(text) if content == "json" else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        names = [
            [f"{key}.{name}" for name in inner] if isinstance(inner, dict) else [key] for key, inner in value.items()
        ]
        return f" The first row has the keys {list_some([repr(name) for several in names for name in several])}."
    by_tab, by_comma = len(text.split("\t")), len(text.split(","))
    columns = f"{by_tab} columns between tabs" if by_tab > 1 or by_comma < 2 else f"no tab, but {by_comma - 1} comma(s)"
    return f" The first row has {columns.replace('1 columns', 'one column')}: {text[:SHOWN]!r}."


def record_as_json(record: Record) -> dict[str, Any]:
    """A record as a JSON object: its fields but those of prepare, and `kind` (document, pair, entry, bad_row)."""
    fields = {name: value for name, value in asdict(record).items() if not name.endswith("duplicate")}
    return {"kind": _KINDS[type(record)], **fields}


def describe_counts(format: str, good: int, bad: Mapping[str, int], skipped: Mapping[str, int]) -> str:  # noqa: A002
    """A sentence on what a source yielded: good records, bad rows and rows left out, by their reasons, and notes."""
    notes = {what.removeprefix(NOTED): count for what, count in skipped.items() if what.startswith(NOTED)}
    left_out = {reason: count for reason, count in skipped.items() if not reason.startswith(NOTED)}
    counted = [
        f"{title} {sum(counts.values()):,} ({list_reasons(counts)})"
        for title, counts in (("bad rows", bad), ("left out", left_out))
        if counts
    ]
    noted = f"; noted: {list_reasons(notes)}" if notes else ""
    return f"{'; '.join([f'{good:,} {_find_format(format).holds}', *counted])}{noted}"


def _find_format(name: str) -> Format:
    if name in _OF_TWO_FILES:
        return _OF_TWO_FILES[name]
    if name not in FORMATS:
        raise ConfigError(f"unknown format '{name}'.{suggest(name, FORMATS)} Known: {', '.join(FORMATS)}.")
    return FORMATS[name]
