"""Downloads of the catalogue: resumed, checked, unpacked, renamed last."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import Annotated, Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import BeforeValidator, Field

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Frozen
from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.work.file_checks import HEAD_BYTES, check_first_bytes

# The catalogue: its entries, their downloads, and the downloads that a recipe needs.

FILE = Path(__file__).with_name("catalogue.yaml")


def _split(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _map(value: Any) -> Any:
    return {code: code for code in value.split()} if isinstance(value, str) else value


class Entry(Frozen):
    """A corpus or data set of the catalogue; catalogue.yaml documents the keys."""

    title: str
    licence: str
    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    files: tuple[str, ...] = ()
    folder: str = ""
    languages: Annotated[dict[str, str], BeforeValidator(_map), Field(default_factory=dict)]
    pairs: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    unpack: Literal["no", "members", "folder"] = "no"
    sums: dict[str, tuple[int | None, str]] = Field(default_factory=dict)
    sha1_list: str | None = None


@dataclass(frozen=True)
class Download:
    """One address, and its result below --out: `files`, or a whole `folder`."""

    url: str
    languages: frozenset[str]  # none where one archive holds many
    files: tuple[str, ...]
    folder: str
    unpack: str
    bytes: int | None
    sha256: str | None
    sha1_list: str | None


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Entry]:
    """The entries by name."""
    return {name: Entry.model_validate(entry) for name, entry in parse_yaml(FILE.read_text(encoding="utf-8")).items()}


def downloads_of(name: str, languages: Sequence[str] = ()) -> list[Download]:
    """The downloads of an entry; with `languages` only theirs, and pairs of two of them.

    Raises:
        ConfigError: unknown name, or nothing in these languages.
    """
    if name not in catalogue():
        raise ConfigError(f"there is no '{name}' in the catalogue.{suggest(name, catalogue())} `--list` names them.")
    entry = catalogue()[name]
    return in_languages(name, [*_downloads(entry)], [*entry.languages, *entry.pairs], languages)


def in_languages(
    name: str, downloads: Sequence[Download], there: Iterable[str], languages: Sequence[str]
) -> list[Download]:
    """Those that are in these languages only, archives of many included; all if no language is named.

    Raises:
        ConfigError: there is nothing in one of them, or in all of them; lists the languages that are `there`.
    """
    listed = {code for download in downloads for code in download.languages}
    fitting = [download for download in downloads if not languages or download.languages <= set(languages)]
    lacking = [code for code in languages if listed and code not in listed]
    if lacking or (downloads and not fitting):
        asked = ", ".join(lacking or languages)
        raise ConfigError(f"{name} has nothing in {asked}; the catalogue lists {', '.join(there)}.")
    return fitting


def needs_of(recipe: str) -> tuple[dict[str, list[Download]], list[str]]:
    """The downloads of a recipe's inputs by entry of the catalogue, and the paths that no entry has.

    Raises:
        ConfigError: there is no such recipe.
    """
    data = load_recipe(recipe).config.data
    by_entry: dict[str, dict[Download, None]] = {}
    others = []
    sources = (*data.corpora, *data.parallel, *data.tests, *data.dev, *data.dictionaries)
    for path in dict.fromkeys(path for source in sources for path in source.paths):
        matches = [
            (name, download)
            for name, download in _everything()
            if any(fnmatchcase(file, path) for file in download.files)
        ]
        for name, download in matches:
            by_entry.setdefault(name, {})[download] = None
        if not matches:
            others.append(path)
    return {name: list(by_entry[name]) for name in catalogue() if name in by_entry}, others


def describe() -> str:
    """The catalogue and what each paper recipe needs of it, as text."""
    lines = ["xalign data fetch NAME --out DIR [--languages CODES], NAME being one of"]
    for name, entry in catalogue().items():
        lines += [f"  {name:21} {entry.title}; {_extent(entry)}", f"  {'':21} licence: {entry.licence}"]
    lines += ["or a recipe, for all that it reads:"]
    for recipe in (name for name in list_recipes() if name.startswith("papers/")):
        by_entry, others = needs_of(recipe)
        listed = [f"{name} ({len(downloads)} of {len(downloads_of(name))})" for name, downloads in by_entry.items()]
        listed += [f"{path} (made here)" for path in others]
        lines.append(f"  {recipe:34} {', '.join(listed)}")
    return "\n".join(lines)


def _extent(entry: Entry) -> str:
    downloads = list(_downloads(entry))
    sizes = [download.bytes for download in downloads if download.bytes]
    size = f", {sum(sizes) / 1e6:,.0f} MB" if len(sizes) == len(downloads) else ""
    what = "language" if entry.languages else "pair" if entry.pairs else "file" if entry.unpack == "no" else "archive"
    number = len(entry.languages) or len(entry.pairs) or len(entry.urls)
    return f"{number} {what}{'s' * (number > 1)}{size}"


@lru_cache(maxsize=1)
def _everything() -> list[tuple[str, Download]]:
    return [(name, download) for name, entry in catalogue().items() for download in _downloads(entry)]


def _downloads(entry: Entry) -> Iterator[Download]:
    for codes, words in _fillings(entry):

        def fill(template: str, words: dict[str, str] = words) -> str:
            return template.format(**words)

        files = tuple(map(fill, entry.files))
        for number, url in enumerate(map(fill, entry.urls)):
            size, sha256 = entry.sums.get(url.rpartition("/")[2], (None, None))
            yield Download(
                url=url,
                languages=codes,
                files=files[number : number + 1] if entry.unpack == "no" else files,
                folder=entry.folder,
                unpack=entry.unpack,
                bytes=size,
                sha256=sha256,
                sha1_list=fill(entry.sha1_list) if entry.sha1_list else None,
            )


def _fillings(entry: Entry) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    for code, theirs in entry.languages.items():
        yield frozenset([code]), {"code": code, "theirs": theirs}
    for pair in entry.pairs:
        first, second = pair.split("-")
        yield frozenset([first, second]), {"pair": pair, "first": first, "second": second}
    if not entry.languages and not entry.pairs:
        yield frozenset(), {}


CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60
TRIES = 5  # in a row without a byte gained
PAUSE_S = 2.0  # before the second try; twice as long before each further one
SAY_EVERY_S = 10.0
_AGENT = {"User-Agent": "xalign-ray"}
_BROKEN_OFF = (URLError, HTTPException, ConnectionError, TimeoutError, SSLError)

Say = Callable[[str], None]


def fetch(name: str, out: Path, languages: Sequence[str], say: Say) -> list[Path]:
    """Loads a corpus of the catalogue, or all that a recipe needs, to the paths that recipes name below `out`.

    Files that are there are not fetched again; broken downloads are resumed.

    Args:
        name: of the catalogue (`xalign data fetch --list`) or of a recipe.
        languages: of the downloads; all that are listed if empty.
        say: receives a line for each step.

    Returns:
        The files and folders that are there now.

    Raises:
        ConfigError: unknown name or language.
        DataError: no network, no such file there, or a file that differs from its publisher's checksum.
    """
    paths: list[Path] = []
    for download in _choose(name, languages, say):
        targets = [out / file for file in download.files] or [out / download.folder]
        if not all(target.exists() for target in targets):
            _fetch_one(download, out, say)
        paths += targets
    return list(dict.fromkeys(paths))


def _choose(name: str, languages: Sequence[str], say: Say) -> list[Download]:
    if name in catalogue():
        return downloads_of(name, languages)
    if name not in list_recipes():
        names = [*catalogue(), *list_recipes()]
        raise ConfigError(
            f"there is no '{name}' in the catalogue, and no recipe of that name.{suggest(name, names)}"
            " `xalign data fetch --list` names what there is."
        )
    by_entry, others = needs_of(name)
    for path in others:
        say(f"{path} is not fetched: it is made here (`xalign data derive`, `xalign data align`), or is yours.")
    downloads = [download for several in by_entry.values() for download in several]
    return in_languages(
        name, downloads, sorted({code for download in downloads for code in download.languages}), languages
    )


def _fetch_one(download: Download, out: Path, say: Say) -> None:
    if download.unpack == "no":
        load(download, out / download.files[0], say)
        return
    file = urlsplit(download.url).path.rpartition("/")[2]
    stem = Path(download.files[0]).stem if download.files else download.folder
    archive = out / ".fetched" / f"{stem}.{file}"  # two corpora may call their archives the same
    load(download, archive, say)
    say(f"unpacking {file}")
    _unpack(archive, download, out)


def load(download: Download, target: Path, say: Say) -> None:
    """Loads one address into a file that appears when it is whole and checked.

    A `.part` next to it holds what has come so far, from session to session. It is resumed if the server still has the
    same file (If-Range), and begun again if not.

    Raises:
        DataError: there is no network or no such file, the connection broke off too often, or a sum differs.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    url, part, tag = download.url, _with_suffix(target, ".part"), _with_suffix(target, ".tag")
    say(f"fetching {url}")
    tries, pause = 0, PAUSE_S
    while True:
        begun = _size(part)
        try:
            _continue(url, part, tag, say)
            break
        except HTTPError as error:
            if error.code == 416 and begun:  # there is nothing after what we have
                break
            if error.code < 500 and error.code != 429:
                raise DataError(f"{url} cannot be fetched: the server says {error.code} {error.reason}.") from None
            reason = f"the server says {error.code}"
        except _BROKEN_OFF as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            if not _size(part):
                raise DataError(f"No network: {urlsplit(url).hostname} cannot be reached ({reason}).") from None
        tries = 1 if _size(part) > begun else tries + 1
        if tries >= TRIES:
            raise DataError(
                f"{url} broke off after {_size(part):,} bytes ({reason}). Run the same command again: it goes on from"
                " there."
            )
        time.sleep(pause)
        pause = min(2 * pause, 60.0) if tries > 1 else PAUSE_S
    try:
        _check(download, part)
    except DataError:
        part.unlink()
        raise
    finally:
        tag.unlink(missing_ok=True)
    os.replace(part, target)


def _continue(url: str, part: Path, tag: Path, say: Say) -> None:
    """One request: the missing rest of the file, or all of it if the server's file has changed.

    `tag` holds the version of the file for If-Range: a strong ETag or a date.
    """
    begun = _size(part)
    version = tag.read_text() if begun and tag.is_file() else ""
    headers = _AGENT | ({"Range": f"bytes={begun}-", "If-Range": version} if version else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_S) as response:
        is_rest = response.status == 206
        total = int(response.headers.get("Content-Length") or 0) + begun * is_rest
        etag = response.headers.get("ETag") or ""
        with part.open("ab" if is_rest else "wb") as file:
            # Written once what another file has left is gone.
            tag.write_text(etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified") or "")
            reported_at = time.monotonic()
            while chunk := response.read1(CHUNK_BYTES):
                file.write(chunk)
                if time.monotonic() - reported_at > SAY_EVERY_S:
                    reported_at = time.monotonic()
                    of = f" of {total / 1e6:,.0f}" if total else ""
                    say(f"{part.name.removeprefix('.').removesuffix('.part')}: {file.tell() / 1e6:,.0f}{of} MB")
    if _size(part) < total:
        raise ConnectionError(f"{total:,} were to come")


def _check(download: Download, part: Path) -> None:
    with part.open("rb") as file:
        check_first_bytes(download.url, file.read(HEAD_BYTES))  # a server may send a page in its place with status 200
    if download.bytes is not None and (size := _size(part)) != download.bytes:
        raise DataError(f"{download.url} gave {size:,} bytes, not the {download.bytes:,} of the catalogue.")
    for kind, published in (("sha256", download.sha256), ("sha1", _published_sha1(download))):
        with part.open("rb") as file:
            if published and (digest := hashlib.file_digest(file, kind).hexdigest()) != published:
                name = kind.upper().replace("SHA", "SHA-")
                raise DataError(f"{download.url} gave a file with {name} {digest}, not {published}; it was removed.")


def _published_sha1(download: Download) -> str | None:
    """The sum of a file in its publisher's list, which names it by its date where the address has `latest`."""
    if download.sha1_list is None:
        return None
    try:
        with urlopen(Request(download.sha1_list, headers=_AGENT), timeout=TIMEOUT_S) as response:
            text = response.read().decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise DataError(f"{download.sha1_list}, the list of sums, cannot be fetched ({error}).") from None
    name = re.escape(urlsplit(download.url).path.rpartition("/")[2]).replace("latest", r"(?:latest|\d{8})")
    match = re.search(rf"^([0-9a-f]{{40}})\s+\*?{name}\s*$", text, re.M)
    return match[1] if match else None


def _unpack(archive: Path, download: Download, out: Path) -> None:
    """Unpacks an archive and removes it: keeps all of it as `folder`, or the members that are called as the `files`.

    Raises:
        DataError: it is no archive, or has not one member for each file. It was fetched whole, so resuming would not
            repair it.
    """
    unpacked = _with_suffix(archive, ".unpacking")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(unpacked)
        else:
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk
            raise
        archive.unlink()
        message = str(error).partition("\n")[0].rstrip(":")
        raise DataError(f"{archive} cannot be unpacked ({message}) and was removed. Fetch it again.") from None
    moves = {unpacked: out / download.folder} if download.unpack == "folder" else {}
    for target in [] if moves else [out / file for file in download.files]:
        members = [path for path in unpacked.rglob(target.name) if path.is_file()]
        if len(members) != 1:
            held = ", ".join(path.name for path in unpacked.rglob("*") if path.is_file())
            raise DataError(f"{archive} has {len(members)} members called {target.name}; it holds {held}.")
        moves[members[0]] = target
    for source, target in moves.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)
    shutil.rmtree(unpacked, ignore_errors=True)
    archive.unlink()


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}{suffix}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
