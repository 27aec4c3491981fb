"""Object stores through fsspec (s3, gs, az, hf, https), their errors as sentences; local paths as users write them."""

from __future__ import annotations

import io
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from xalign_ray.errors import ConfigError, DataError, XalignError
from xalign_ray.work.file_checks import check_plain

BLOCK_BYTES = 1 << 20  # asked of a store ahead of what is read: a look at a head costs no more
SMALL_BYTES = 4 << 20  # files of web servers that one request reads
BUFFER_BYTES = 1 << 16  # least read of a stored file
KNOWN_S = 60  # lifetime of a cached size and version
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# The stores that are read and written; file:// is a path, memory:// lives as long as this process.
CACHE = "XALIGN_CACHE"  # the folder that mirrors stores; nodes of a cluster must share it
SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "http", "https", "file", "memory")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
# Sentences for errors of the stores' packages, by words in an error's name or text; the first match is used.
_FAULTS = (
    (r"expired", "the credentials have expired. Renew them in the environment and rerun the same command."),
    (
        r"nocredentials|unable to locate credentials|anonymous caller",
        "there are no credentials for the store. Give them in the environment, AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY for s3://.",
    ),
    (r"nosuchbucket|bucket does not exist", "there is no such bucket. Check its name and the store that is asked."),
    (
        r"bad request",  # to HEAD S3 answers so, with nothing more
        "the store refuses the request and does not say why: so it does with credentials that have expired or are "
        "incomplete, and with a wrong region. Renew them in the environment and rerun the same command.",
    ),
    (r"filenotfound|nosuchkey|404", "there is no such object. Check the URL and your access to it."),
    (
        r"permission|access denied|forbidden|invalidaccesskey|signature|401|403",
        "the store refuses access. Check the credentials in the environment, and what they may read and write.",
    ),
)


def is_url(path: str) -> bool:
    """Whether a path begins with a scheme, as s3://bucket/key does."""
    return bool(_SCHEME.match(path))


def is_stored(path: str) -> bool:
    """Whether a path lies in a store: file:// is the disk."""
    return is_url(path) and not path.lower().startswith("file:")


def check_scheme(url: str) -> str:
    """The scheme of a URL in lower case.

    Raises:
        DataError: it is not supported.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise DataError(
            f"{url}: {scheme}:// is not supported. Give a path on a disk, or a URL of s3://, gs://, az://, abfs://, "
            "hf://, http:// or https://."
        )
    return scheme


def find_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the URL's path in it.

    Raises:
      DataError: the scheme is not supported, the package that reads it is not installed, or the store refuses.
    """
    import fsspec

    scheme, rest = check_scheme(url), url.partition("://")[2]
    with said_of(url, "cannot be opened"):
        try:
            # A listing kept by this process would hide what another one writes. Proxies of the environment are taken
            # by the packages of all other stores.
            proxies = {"client_kwargs": {"trust_env": True}} if scheme.startswith("http") else {}
            return fsspec.core.url_to_fs(f"{scheme}://{rest}", use_listings_cache=False, **proxies)
        except ImportError as error:
            package = _PACKAGES.get(scheme, f"that fsspec needs for it ({error})")
            raise DataError(f"{url}: {scheme}:// is read through the package {package}; install it here.") from None


_infos: dict[str, tuple[float, Mapping[str, Any]]] = {}


def info_of(url: str, *, anew: bool = False) -> Mapping[str, Any]:
    """Size and version of an object in a store; cached for KNOWN_S, unless asked `anew`.

    Raises:
        DataError: the store refuses.
    """
    asked_at, info = _infos.get(url, (0.0, {}))
    if anew or not info or time.monotonic() - asked_at > KNOWN_S:
        system, path = find_system(url)
        with said_of(url):
            info = system.info(path)
        _infos[url] = time.monotonic(), info
    return info


def is_web(url: str) -> bool:
    """Whether a URL is of a web server, which lists no folders and gives a size in a separate request."""
    return url.lower().startswith(("http://", "https://"))


@contextmanager
def said_of(url: str, what: str = "cannot be read") -> Iterator[None]:
    """Inside, any error of a store's package becomes one sentence about a URL."""
    try:
        yield
    except XalignError:
        raise
    except Exception as error:
        raise DataError(f"{url} {what}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    names = " ".join(f"{type(cause).__name__} {cause}" for cause in _causes(error))
    for words, sentence in _FAULTS:
        if re.search(words, names, re.IGNORECASE):
            return sentence
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text.rstrip('.')}. Check the network and your access to it."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def open_stored(url: str) -> io.BufferedReader:
    """An object of a store as a file to read and seek in; one that ends before its listed size is an error.

    Raises, from each of the file's methods too:
        DataError: the store refuses, does not answer after its package's own tries, or ends an object early.
    """
    return io.BufferedReader(_StoredFile(url), BUFFER_BYTES)


class _StoredFile(io.RawIOBase):
    def __init__(self, url: str) -> None:
        self._url = url
        self._file: Any = None  # also closed where it cannot be opened
        system, path = find_system(url)
        if url.startswith("file:"):
            check_plain(path)
        size = info_of(url).get("size") if is_web(url) else None
        with said_of(url):
            if size and size <= SMALL_BYTES:  # whole, also where it has grown since its size was asked for
                self._file = io.BytesIO(system.cat_file(path))
            else:
                self._file = system.open(path, "rb", block_size=BLOCK_BYTES)
                size = 0
            self._size = max(size, self._file.seek(0, io.SEEK_END))
            self._file.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        at = self._file.tell()
        wanted = max(0, min(len(buffer), self._size - at))
        with said_of(self._url, f"cannot be read at byte {at:,}"):
            data = self._file.read(wanted)
            if len(data) < wanted:
                raise EOFError(f"the store ended it after {at + len(data):,} of {self._size:,} bytes")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and self._file is not None:
            self._file.close()
        super().close()


# Local paths as users write them, made absolute once: `~` is the home folder; URLs, hub ids and names stay.
#
# Workers of Ray Train and Ray Tune run in folders of their own, where a relative path leads elsewhere.

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # also one that a Path took a slash from
_VARIABLE = re.compile(r"\$[A-Za-z_]|\$\{[A-Za-z_]\w*\}")
RUN_OF = "run:"  # what `model.init_from` begins with where it names a recipe
Written = TypeVar("Written", str, Path)


def expand_home(written: str) -> str:
    """The path with the home folder in place of a leading `~`."""
    return os.path.expanduser(written)


def home_folder() -> Path:
    """The user's; the root where the system knows none, as in a container of a user without a name."""
    return Path("/", expand_home("~").removeprefix("~"))


def absolute_path(written: Written) -> Written:
    """The absolute path of a local file or folder; a URL unchanged. Links are kept.

    Raises:
        ConfigError: it begins with `~` and has no home folder, or has a `$VARIABLE`, and there is nothing of that name.
    """
    text = str(written)
    if _URL.match(text):
        return written
    expanded = expand_home(text)
    if (expanded.startswith("~") or _VARIABLE.search(expanded)) and not os.path.lexists(expanded):
        what = "its ~ stands for no home folder" if expanded.startswith("~") else "variables are not replaced in paths"
        raise ConfigError(f"The path '{text}' is not there, and {what}; write it out.")
    return type(written)(os.path.abspath(expanded))


def absolute_model(written: str) -> str:
    """A model as a user names it: a folder that exists as absolute path, a hub id or URL unchanged."""
    expanded = expand_home(written)
    return absolute_path(expanded) if os.path.isdir(expanded) else expanded


def cache_folder() -> Path:
    """Where stores are mirrored."""
    return absolute_path(Path(os.environ.get(CACHE) or home_folder() / ".cache" / "xalign-ray"))


def url_of(folder: Path) -> str | None:
    """The URL that a folder mirrors; None of one that is only here."""
    path, cache = Path(os.path.abspath(folder)), cache_folder()
    if not path.is_relative_to(cache):  # but perhaps behind a link, as ~/.cache is on clusters
        path, cache = (Path(os.path.realpath(link)) for link in (path, cache))  # a link to itself is no error there
    parts = path.relative_to(cache).parts if path.is_relative_to(cache) else ()
    # A folder of another name is the user's own: the cache may be the disk that all is on.
    return f"{parts[0]}://{'/'.join(parts[1:])}" if parts and parts[0] in SCHEMES else None


def quoted(path: Path) -> str:
    """The path as a word of a command that is shown: the URL of a mirror; what begins with a dash is no option."""
    shown = url_of(path) or shown_path(path)
    return shlex.quote(f"./{shown}" if shown.startswith("-") else shown)


def is_folder_name(written: str) -> bool:
    """Whether a model's name can only be a local folder; any other name can be the id of a hub model."""
    if written.startswith(RUN_OF):
        return False
    hub_id = written.partition("@")[0]
    organisation = hub_id.rpartition("/")[0]
    is_there = os.path.lexists(written) or (organisation != "" and os.path.isdir(organisation))
    return is_there or written.startswith((".", "/", "~")) or not _is_hub_id(hub_id)


def _is_hub_id(written: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(written)
    except HFValidationError:
        return False
    return True


def shown_path(path: Path) -> str:
    """The path for a message: relative inside the current folder, else absolute."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def hide_places(value: Any) -> Any:
    """A value of JSON in whose texts the current folder is `./` and the home folder `~/`.

    Other paths stay unchanged, and so does a part of a URL or of a longer path.
    """
    if isinstance(value, Mapping):
        return {hide_places(key): hide_places(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(hide_places, value))
    if isinstance(value, str) and "/" in value:
        for pattern, short in _places(Path.cwd(), home_folder()):
            value = pattern.sub(short, value)
    return value


@cache
def _places(*folders: Path) -> list[tuple[re.Pattern[str], str]]:
    """What to look for and what stands for it, the longer path first."""
    folders_and_names = [
        (str(folder), short) for folder, short in zip(folders, ("./", "~/"), strict=True) if folder.parent != folder
    ]
    begins, ends = r"(?:(?<![\w.~/-])|(?<=file://)|(?<=sqlite:///))", r"(?:/|(?![\w-]|\.\w))"
    return [
        (re.compile(f"{begins}{re.escape(folder)}{ends}"), short)
        for folder, short in sorted(folders_and_names, key=lambda one: -len(one[0]))
    ]
