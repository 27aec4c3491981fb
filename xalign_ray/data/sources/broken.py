"""Says where a file stops being readable: what an unreadable rest is called, and the error that stops a job at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from xalign_ray.errors import DataError

T = TypeVar("T")

TRUNCATED = "truncated archive"
DAMAGED = "damaged archive"
CHECKSUM = "its checksum is wrong"
XML_ENDS = "XML ends too early"
XML_LONG = "an element is longer than 64 MB"
XML_BROKEN = "XML is not well-formed"
_CUT_SHORT = frozenset({TRUNCATED, XML_ENDS})


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """The rest of a file that cannot be read; offsets count the file's bytes as it lies there, packed or not.

    Of a member of a zip they count its unpacked bytes, of Parquet the share is of the bytes of the column `text`.
    """

    source: str
    reason: str
    offset: int  # what stands before it could be read
    size: int
    unread_share: float  # of the file's bytes; of those that are there, where its end is missing
    after: str = ""  # the last record that was read, such as "line 14,975"

    def __str__(self) -> str:
        after = f", after {self.after}" if self.after else ""
        if self.reason in _CUT_SHORT:
            return (
                f"{self.source} breaks off at byte {self.offset:,} of {self.size:,}{after}: {self.reason}. "
                f"{self.unread_share:.1%} of the bytes that are there were not read; how much was cut off cannot be "
                "known."
            )
        if self.reason == CHECKSUM:
            return (
                f"{self.source} was unpacked to byte {self.offset:,} of {self.size:,}, but {self.reason}: it is "
                "damaged somewhere before, and where cannot be known."
            )
        return (
            f"{self.source} cannot be read from byte {self.offset:,} of {self.size:,} on{after}: {self.reason}. "
            f"{self.unread_share:.1%} of its bytes were not read."
        )


class BrokenFileError(DataError):
    """Raised by a reader after everything that it could read; stops the job unless it is collected (read_part)."""

    def __init__(self, what: BrokenFile) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return (
            f"{self.what} Fetch or repair the file; prepare keeps what was read before it where the recipe says "
            "data.on_broken_file: keep_rest_out."
        )

    def after(self, record: str, number: int) -> BrokenFileError:
        """The same, with the kind and number of the last record before it; the first to say them is the closest."""
        known = self.what.after or not number
        return self if known else BrokenFileError(replace(self.what, after=f"{record} {number:,}"))


def held_back(lines: Iterator[T], broken: list[BrokenFileError]) -> Iterator[T]:
    """The same lines, with the error at their end put aside, for a reader that has something to finish before it."""
    try:
        yield from lines
    except BrokenFileError as error:
        broken.append(error)
