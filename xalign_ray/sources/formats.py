"""The formats by name, and the one way to read a source of any format, whole or part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import take_language
from xalign_ray.config.sources import HF, WITH_COLUMNS, Corpus, Dictionary, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.archives import is_zip
from xalign_ray.sources.columnar import open_arrow, open_parquet, split_parquet
from xalign_ray.sources.columns import resolve_columns
from xalign_ray.sources.conllu import read_conllu
from xalign_ray.sources.hub import FoundFiles, find_split, find_split_of_each, is_hub_id
from xalign_ray.sources.open import (
    Chunks,
    check_lines,
    expand,
    is_folder,
    join_path,
    open_bytes,
    read_lines,
)
from xalign_ray.sources.readings import OpenTable, read_part_of_table
from xalign_ray.sources.records import (
    ONE_EMPTY,
    WHOLE,
    BadRow,
    Document,
    Entry,
    Kind,
    Lines,
    Noted,
    Pair,
    Part,
    Record,
    Skipped,
    list_reasons,
    numbered,
    one_part,
    one_part_a_file,
    split_by_size,
    split_in_parallel,
)
from xalign_ray.sources.stored import read_stored
from xalign_ray.sources.tables import (
    SourceTable,
    TableFile,
    open_csv,
    open_json,
    open_jsonl,
    open_muse,
    open_tsv,
    open_workbook,
    split_csv,
)
from xalign_ray.sources.text import (
    check_links,
    pair_documents,
    read_moses,
    read_opus,
    read_text,
)
from xalign_ray.sources.translation_files import open_po, open_tmx, open_xliff
from xalign_ray.sources.wikipedia import read_wikipedia, split_dumps
from xalign_ray.work.file_checks import check_plain
from xalign_ray.work.storage import is_url

_ANY: tuple[Kind, ...] = ("documents", "pairs", "entries")


@dataclass(frozen=True, slots=True)
class Format:
    """A format: a container, opened as a table, or what `read` makes records of.

    Attributes:
        holds: what its rows may be read as; by the number of languages where these are several.
        paths: the numbers of paths that it takes; () is one or more.
        content: what lines its files hold; other is not of lines.
        check: of all its files together.
    """

    holds: tuple[Kind, ...]
    open: OpenTable | None = None
    read: Callable[[Part, Sequence[str]], Iterator[Record | Skipped | Noted | Lines]] | None = None
    split: Callable[[str, Sequence[str]], list[Part]] = one_part_a_file
    paths: tuple[int, ...] = ()
    content: Literal["sentences", "text", "json", "other"] = "other"
    check: Callable[[Sequence[str]], None] | None = None


FORMATS: dict[str, Format] = {
    "wikipedia": Format(("documents",), read=read_wikipedia, split=split_dumps),
    "text": Format(("documents",), read=read_text, split=split_by_size, content="sentences"),
    "conllu": Format(("documents",), read=read_conllu, content="text"),
    "csv": Format(_ANY, open_csv, split=split_csv, content="text"),
    "tsv": Format(_ANY, open_tsv, split=split_csv, content="text"),
    "xlsx": Format(_ANY, open_workbook),
    "jsonl": Format(_ANY, open_jsonl, split=split_by_size, content="json"),
    "json": Format(_ANY, open_json),
    "parquet": Format(_ANY, open_parquet, split=split_parquet),
    "arrow": Format(_ANY, open_arrow),
    "tmx": Format(("pairs",), open_tmx),
    "xliff": Format(("pairs",), open_xliff),
    "po": Format(("pairs",), open_po),
    "moses": Format(("pairs",), None, read_moses, split_in_parallel, (2, 3), "sentences", check_links),
    "opus": Format(("pairs",), read=read_opus),
    "muse": Format(("entries",), open_muse, content="text"),
}
SIDE_BY_SIDE = "_side_by_side"  # behind the format of two files, one a language, of a Hugging Face data set


def _read_side_by_side(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Pairs of two files of text, one a language: row i of both, as text in one language is read."""
    columns = part.columns or (None, None)
    if len(columns) > 2:
        raise ConfigError(
            f"{part.paths[0]}: where and negatives are of tables that hold both languages, and here each has its own."
        )
    format_ = part.format.removesuffix(SIDE_BY_SIDE)
    sides = [
        parse(Part(format_, (path,), (WHOLE,), columns=(name,) if name else None, kind="documents"), (code,))
        for path, name, code in zip(part.paths, columns, languages, strict=True)
    ]
    yield from pair_documents(sides, part.paths, languages)


_SIDES = Format(("pairs",), read=_read_side_by_side, split=one_part, paths=(2,))
SHOWN = 80  # characters of a row that a message shows
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
    kind: Kind | None = None,
) -> Iterator[Record]:
    """All records of a source, streaming; `skipped` receives counts of rows that were left out on purpose, by reason.

    Args:
      columns: where a document or the two sides of a pair stand, as Corpus and ParallelCorpus name them; `skip_empty`
        is as in the latter.
      kind: what its rows are read as; by default documents of one language and pairs of two, if the format has them.

    Raises:
      ConfigError: unknown format or language, wrong number of languages or paths; at the call.
      DataError: a path is missing (at the call); the source yields no good record (at its end).
      BrokenFileError: the rest of a file cannot be read.
    """
    codes = check_languages(format, languages, kind)
    cut = parts(format, paths, kind or kind_of(format, codes), codes, columns)
    given = tuple(columns) if columns else None
    named = [replace(part, columns=given, skip_empty=skip_empty) for part in numbered(cut)]
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
        if isinstance(record, Skipped | Noted | Lines):
            if skipped is not None and not isinstance(record, Lines):
                skipped[NOTED + record.what if isinstance(record, Noted) else record.reason] += record.count
        else:
            yield record


def parse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted | Lines]:
    """The records of a part's files, by the reader of its format."""
    assert not part.beside, "columns stand beside text that is parsed"
    entry = _find_format(part.format)
    if entry.read:
        return entry.read(part, languages)
    assert entry.open
    return read_part_of_table(entry.open, part, part.kind or entry.holds[0], languages)


def open_table(format: str, path: str) -> SourceTable:  # noqa: A002
    """A file of a container as a table of pairs, as resolve_columns and its readings take it."""
    opened = _find_format(format).open
    assert opened, f"{format} is no container"
    return opened(TableFile(Chunks(path)))


def kind_of(format: str, languages: Sequence[str]) -> Kind:  # noqa: A002
    """The reading of a format's rows: documents of one language, else pairs, or the only one that the format has."""
    holds = _find_format(format).holds
    return holds[0] if len(holds) == 1 or len(languages) == 1 else "pairs"


def parts(
    format: str,  # noqa: A002
    paths: Sequence[str],
    kind: Kind | None = None,
    languages: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> list[Part]:
    """Cuts a source into units of work: a part a file; files of lines, Parquet and dumps of over 64 MB into several.

    Paths may be glob patterns (sorted by name) and URLs. Large Moses files and tables between delimiters that are not
    packed are read once, to number their lines.

    Args:
      kind: documents, pairs or entries; needed for a format that may hold several.
      languages, columns: as in check_contents.

    Raises:
      ConfigError: unknown format, or a number of paths that it does not take.
      DataError: a path is missing, or is no plain file of the format's kind, by its beginning.
    """
    entry = _find_format(format)
    files = find_files(paths)
    if entry.paths and len(files) not in entry.paths:
        allowed = " or ".join(map(str, entry.paths))
        raise ConfigError(f"format '{format}' takes {allowed} paths, not {len(files)}: {', '.join(files) or 'none'}.")
    check_contents(format, files, kind, languages, columns)
    if len(entry.holds) == 1:
        return entry.split(format, files)
    cut = one_part_a_file if kind == "entries" else entry.split
    return [replace(part, kind=kind) for part in cut(format, files)]


def check_contents(
    format: str,  # noqa: A002
    files: Sequence[str],
    kind: Kind | None = None,
    languages: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> None:
    """Looks at the first bytes of files, and, where languages are given, for the columns of tables of text and pairs.

    Files behind URLs are looked at when they are read, but for what is checked of all files together.

    Raises:
      DataError: one is no plain file of the format's kind, or has no such columns.
    """
    entry = _find_format(format)
    for path in files if not any(map(is_url, files)) else ():
        holds = (kind,) if kind else entry.holds
        if entry.content == "other" or (holds == ("entries",) and is_zip(path)):
            open_bytes(path).close()
        else:
            check_lines(path, json_lines=entry.content == "json", sentences=entry.content == "sentences")
        if entry.open and languages and kind != "entries":
            kind = kind or kind_of(format, languages)
            resolve_columns(entry.open(TableFile(Chunks(path), kind)), languages, columns or (), kind)
    if entry.check:
        entry.check(files)


def find_files(paths: Sequence[str]) -> list[str]:
    """The files that paths, URLs and glob patterns of either name, patterns in sorted order.

    Raises:
      DataError: a path or pattern names nothing, a folder, or what is no plain file.
    """
    matches = [match for path in paths for match in expand(path)]
    if folders := [path for path in matches if is_folder(path)]:
        raise DataError(f"{folders[0]} is a folder. Name the files in it, for example {folders[0].rstrip('/')}/*.")
    for path in matches:
        if not is_url(path):
            check_plain(path)
    return matches


def find_source(source: Corpus | ParallelCorpus | Dictionary, root: str | Path = ".") -> tuple[str, list[str]]:
    """The reader of a source and its files; a Hugging Face data set's are found by split.

    Raises:
      DataError: a path names nothing, a folder, or what is no plain file; a data set is not there or out of reach.
      ConfigError: a data set has no such configuration or split.
    """
    paths = [join_path(str(root), path) for path in source.paths]
    if isinstance(source, Dictionary) or source.format != HF:
        return source.format, find_files(paths)
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
        readers = [_reader_of(paths[0], files_of_language, 1) for files_of_language in each]
        if len({reader for reader, _ in readers}) > 1:
            raise DataError(f"{paths[0]}: the files of {codes[0]} and {codes[1]} are of different forms.")
        return readers[0][0] + SIDE_BY_SIDE, [file for _, files in readers for file in files]
    return _reader_of(paths[0], find_split(paths[0], codes, config, split, revision), len(codes))


def _reader_of(name: str, found: FoundFiles, languages: int) -> tuple[str, list[str]]:
    if found.kind == "text" and languages > 1:
        raise DataError(f"{name} is plain text, a line a row, and pairs need two columns.")
    if found.kind != "json":
        return found.kind, found.files
    is_array = next(iter(Chunks(found.files[0])), b"").lstrip().startswith(b"[")
    return "json" if is_array else "jsonl", found.files


def check_languages(format: str, languages: Sequence[str], kind: Kind | None = None) -> tuple[str, ...]:  # noqa: A002
    """The canonical codes of a source's languages.

    Args:
      kind: documents, pairs or entries; needed for a format that may hold several.

    Raises:
      ConfigError: no code, a number of languages that the format does not take, or the same language twice in a
        dictionary, or in a format whose texts are known by their language.
    """
    kinds = (kind,) if kind else _ANY if format == HF else _find_format(format).holds
    counts = sorted({1 if kind == "documents" else 2 for kind in kinds})
    codes = tuple(take_language(code) for code in languages)
    if len(codes) not in counts:
        allowed = " or ".join(map(str, counts))
        listed = ", ".join(codes) or "none"
        raise ConfigError(f"format '{format}' takes {allowed} language{'s' * (allowed != '1')}, not {listed}.")
    if len(set(codes)) < len(codes) and (kind == "entries" or format not in (*WITH_COLUMNS, "moses")):
        raise ConfigError(f"format '{format}' takes two different languages, not {', '.join(languages)}.")
    return codes


def explain_empty(todo: Sequence[Part]) -> str:
    """The sentence for a source whose parts all yielded nothing."""
    files = list(dict.fromkeys(path for part in todo for path in part.paths))
    holds = todo[0].kind or _find_format(todo[0].format).holds[0] if todo else "documents"
    named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    verb = "holds" if len(files) == 1 else "hold"
    return f"{named or 'The source'} {verb} no {holds}. Check that it is the right file and that the format fits."


def explain_no_good_row(todo: Sequence[Part], bad: Mapping[str, int]) -> str:
    """The sentence for a source without a good row: the reasons, and the first row."""
    if not bad:
        return explain_empty(todo)
    files = list(dict.fromkeys(path for part in todo for path in part.paths))
    named = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return (
        f"{named}: no row can be read as format {todo[0].format}. All {sum(bad.values()):,} were set aside "
        f"({list_reasons(bad)}).{_first_row(todo[0])} Check that the format fits."
    )


def _first_row(part: Part) -> str:
    """The first line of a part, for messages."""
    content, path = _find_format(part.format).content, part.paths[0]
    if content == "other" or is_zip(path):
        return ""
    lines = read_lines(path, part.spans[0], part.first_line, json_lines=content == "json")
    texts = (line.text for line in lines if line.text.strip() and not line.text.startswith("#"))
    return f" Its first row is {text[:SHOWN]!r}." if (text := next(texts, "")) else ""


def record_as_json(record: Record) -> dict[str, Any]:
    """A record as a JSON object: its fields without prepare's, and `kind` (document, pair, entry, bad_row)."""
    fields = {name: value for name, value in asdict(record).items() if not name.endswith("duplicate")}
    if not fields.get("negatives", True):
        del fields["negatives"]
    return {"kind": _KINDS[type(record)], **fields}


def split_notes(counts: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """The counts that readers make, parted: rows left out, by reason; and notes."""
    notes = Counter({what.removeprefix(NOTED): count for what, count in counts.items() if what.startswith(NOTED)})
    return Counter({what: count for what, count in counts.items() if not what.startswith(NOTED)}), notes


def describe_counts(kind: Kind, good: int, bad: Mapping[str, int], skipped: Mapping[str, int]) -> str:
    """A sentence on the rows of a source: good records, bad rows and rows left out, by their reasons, and notes."""
    left_out, notes = split_notes(skipped)
    counted = [
        f"{title} {sum(counts.values()):,} ({list_reasons(counts)})"
        for title, counts in (("bad rows", bad), ("left out", left_out))
        if counts
    ]
    noted = f"; noted: {list_reasons(notes)}" if notes else ""
    return f"{'; '.join([f'{good:,} {kind}', *counted])}{noted}"


def _find_format(name: str) -> Format:
    if name.endswith(SIDE_BY_SIDE):
        return _SIDES
    if name not in FORMATS:
        raise ConfigError(f"unknown format '{name}'.{suggest(name, FORMATS)} Known: {', '.join(FORMATS)}.")
    return FORMATS[name]
