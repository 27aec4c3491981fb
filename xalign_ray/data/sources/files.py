"""Finds and opens files wherever they lie: on local disks, and behind URLs that fsspec knows (s3, gs, hf, https)."""

from __future__ import annotations

import glob
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from xalign_ray.errors import DataError
from xalign_ray.work.file_checks import HEAD_BYTES, check_first_bytes, open_file
from xalign_ray.work.storage import StoredFile, find_system, is_url, said_of

_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "LastModified",
    "last_modified",
    "mtime",
    "updated",
    "blob_id",
)  # as stores say


def join_path(root: str, path: str) -> str:
    """A path of a recipe, seen from its root: URLs and absolute paths stand for themselves; the root may be a URL."""
    if is_url(path):
        return path
    return f"{root.rstrip('/')}/{path}" if is_url(root) and not Path(path).is_absolute() else str(Path(root) / path)


def open_bytes(path: str) -> BinaryIO:
    """A file to read and seek in.

    Raises:
      DataError: it cannot be opened: a link that leads nowhere or to itself, a file that others may not read, a pipe,
        a URL whose store refuses; or it is a pointer or an error message in the file's place.
    """
    if not is_url(path):
        return open_file(path)
    with ExitStack() as stack:
        file = stack.enter_context(StoredFile(path))
        check_first_bytes(path, file.read(HEAD_BYTES))
        file.seek(0)
        stack.pop_all()
    return cast("BinaryIO", file)


def facts_of(path: str) -> list[Any] | None:
    """What changes when a file does: size, mtime and ctime in ns, inode; of a URL size and version; None if not known.

    No program can set a ctime back, so a file that was changed in place under its old mtime is noticed.
    """
    if not is_url(path):
        stat = Path(path).stat()
        return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    system, inner = find_system(path)
    with said_of(path):
        info = system.info(inner)
    version = next((info[key] for key in _VERSIONS if info.get(key)), None)
    return [info.get("size"), str(version)] if version else None


def size_of(path: str) -> int:
    """Bytes of a file."""
    if not is_url(path):
        return Path(path).stat().st_size
    with open_bytes(path) as file:
        return file.seek(0, 2)


def is_folder(path: str) -> bool:
    """Whether a path is a folder."""
    if not is_url(path):
        return Path(path).is_dir()
    system, inner = find_system(path)
    with said_of(path, "cannot be looked up"):
        return system.isdir(inner)


def expand(path: str) -> list[str]:
    """What a path or pattern names, patterns in sorted order; a file whose name looks like a pattern is that file,
    and so is a folder.

    Raises:
      DataError: it names nothing, or the store that it lies in cannot be asked.
    """
    if is_url(path):
        return _expand_url(path)
    matches = [path] if Path(path).exists() else sorted(_matches(path))
    if not matches:
        raise DataError(f"{path} does not exist. Check the path; relative paths start from {Path.cwd()}.")
    return matches


def _matches(pattern: str) -> list[str]:
    """The paths that match; the folders above that exist are meant as written, whatever characters they have."""
    above = next((folder for folder in Path(pattern).parents if folder.is_dir()), Path())
    rest = str(Path(pattern).relative_to(above))
    return glob.glob(str(Path(glob.escape(str(above))) / rest), recursive=True)


def _expand_url(path: str) -> list[str]:
    system, inner = find_system(path)
    with said_of(path, "cannot be looked up"):
        found = [inner] if system.exists(inner) else sorted(cast("list[str]", system.glob(inner)))
    if not found:
        raise DataError(f"{path} does not exist. Check the URL and your access to it.")
    return [path] if found == [inner] else [system.unstrip_protocol(one) for one in found]
