"""Sources of a recipe: monolingual text, sentence pairs and bilingual dictionaries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from xalign_ray.config.fields import Frozen, LocalPath

TextFormat = Literal["wikipedia", "text", "jsonl", "parquet", "conllu"]
PairFormat = Literal[
    "moses",
    "tsv",
    "csv",
    "xlsx",
    "jsonl_pairs",
    "json_pairs",
    "parquet_pairs",
    "arrow_pairs",
    "tmx",
    "xliff",
    "po",
    "opus",
]
DictionaryFormat = Literal["muse", "tsv", "csv", "tbx", "tei", "dix", "kaikki", "panlex"]
WITH_COLUMNS = (
    "tsv",
    "csv",
    "xlsx",
    "jsonl_pairs",
    "json_pairs",
    "parquet_pairs",
    "arrow_pairs",
)  # formats whose two sides have names or places


class Corpus(Frozen):
    """Monolingual text in one language."""

    format: Annotated[TextFormat, Field(description="how its files are read")]
    language: Annotated[str, Field(description="BCP-47 code")]
    paths: Annotated[
        tuple[LocalPath, ...], Field(min_length=1, description="files, glob patterns or URLs; relative to data.root")
    ]


class ParallelCorpus(Frozen):
    """Sentence pairs; for `moses`, paths are the first side, the second side and, if there is one, the alignment."""

    format: Annotated[PairFormat, Field(description="how its files are read")]
    languages: Annotated[tuple[str, str], Field(description="codes of the first and the second side")]
    paths: Annotated[tuple[LocalPath, ...], Field(min_length=1, description="files or URLs; relative to data.root")]
    columns: Annotated[
        tuple[str, str] | None,
        Field(
            description="where the two sides stand: names of the header, keys of JSON objects (dotted inside one: "
            "`translation.en`), or numbers from 1 where there is no header; null: by the languages"
        ),
    ] = None
    skip_empty: Annotated[
        bool,
        Field(
            description="whether rows that lack one of the two texts are left out and are no bad rows, as in tables of "
            "several languages"
        ),
    ] = False
    align: Annotated[
        str,
        Field(
            pattern=r"^(hmm|ibm|encoder:.+)?$",
            description="aligner of its words, run by prepare on the tokenizer's own: hmm, ibm or encoder:FOLDER; none "
            "if empty",
        ),
    ] = ""

    @model_validator(mode="after")
    def _is_aligned_once(self) -> ParallelCorpus:
        if self.align and self.brings_alignment:
            raise ValueError("align, and a third path that holds an alignment: keep one")
        return self

    @model_validator(mode="after")
    def _has_columns(self) -> ParallelCorpus:
        if self.columns and self.format not in WITH_COLUMNS:
            raise ValueError(f"format {self.format} has no columns; leave out columns")
        if self.columns and self.columns[0] == self.columns[1]:
            raise ValueError(f"columns name '{self.columns[0]}' twice; name two different ones")
        return self

    @property
    def brings_alignment(self) -> bool:
        """Whether its files hold one."""
        return self.format == "moses" and len(self.paths) == 3


class Dictionary(Frozen):
    """A bilingual dictionary. `held_out` pairs are never trained on; the alignment probe scores them."""

    format: Annotated[DictionaryFormat, Field(description="how its files are read")] = "muse"
    languages: Annotated[tuple[str, str], Field(description="codes of the first and the second word of a line")]
    paths: Annotated[tuple[LocalPath, ...], Field(min_length=1, description="files or URLs; relative to data.root")]
    split: Annotated[Literal["train", "held_out"], Field(description="whether its pairs are trained on or scored")] = (
        "train"
    )

    @property
    def reader(self) -> str:
        """The name of its reader: tables of pairs have readers of their own."""
        return f"{self.format}_terms" if self.format in ("tsv", "csv") else self.format
