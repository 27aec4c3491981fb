"""Which documents, lines and pairs `prepare` leaves out of a corpus: all off unless asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from xalign_ray.config.fields import Float, Fraction, Frozen, Int, Positive

NGrams = tuple[tuple[Positive, Fraction], ...]


class QualityConfig(Frozen):
    """Rules for whole documents, as datatrove names them; 0 is no limit. A word is what is counted as one in a script
    without blanks too."""

    min_doc_words: Annotated[Int, Field(ge=0, description="words of a document; Gopher 50")] = 0
    max_doc_words: Annotated[Int, Field(ge=0, description="words of a document; Gopher 100,000")] = 0
    min_avg_word_length: Annotated[
        Float, Field(ge=0, description="characters of a word, not of scripts without blanks; Gopher 3")
    ] = 0.0
    max_avg_word_length: Annotated[
        Float, Field(ge=0, description="characters of a word, not of scripts without blanks; Gopher 10")
    ] = 0.0
    min_alpha_words_ratio: Annotated[
        Fraction,
        Field(description="words that hold a letter; Gopher 0.8 (datatrove calls it max_non_alpha_words_ratio)"),
    ] = 0.0
    max_symbol_word_ratio: Annotated[
        Float, Field(ge=0, description="hash signs, or else ellipses, to words; Gopher 0.1")
    ] = 0.0
    max_digit_fraction: Annotated[Fraction, Field(description="digits among the characters that are no blanks")] = 0.0
    max_punctuation_fraction: Annotated[
        Fraction, Field(description="punctuation and symbols among the characters that are no blanks")
    ] = 0.0
    max_bullet_lines_ratio: Annotated[Fraction, Field(description="lines that begin with a bullet; Gopher 0.9")] = 0.0
    max_ellipsis_lines_ratio: Annotated[Fraction, Field(description="lines that end in an ellipsis; Gopher 0.3")] = 0.0
    dup_line_frac: Annotated[Fraction, Field(description="lines that stood before in their document; Gopher 0.3")] = 0.0
    dup_line_char_frac: Annotated[Fraction, Field(description="characters of such lines; Gopher 0.2")] = 0.0
    top_n_grams: Annotated[
        NGrams,
        Field(
            description="[n, fraction]: characters of the most frequent n-gram of words; Gopher [[2, 0.2], [3, 0.18], "
            "[4, 0.16]]"
        ),
    ] = ()
    dup_n_grams: Annotated[
        NGrams,
        Field(
            description="[n, fraction]: characters of n-grams of words that stood before; Gopher [[5, 0.15], [6, "
            "0.14], [7, 0.13], [8, 0.12], [9, 0.11], [10, 0.1]]"
        ),
    ] = ()


class NearDuplicatesConfig(Frozen):
    """MinHash in bands, as datatrove has it. Two texts with a share s of their n-grams in common are found with
    probability 1 - (1 - s^hashes_per_bucket)^num_buckets: as it stands 0.56 at s = 0.7, 0.92 at 0.8, 0.009 at 0.4."""

    n_grams: Annotated[Positive, Field(le=20, description="words of an n-gram; a shorter line is one")] = 5
    num_buckets: Annotated[Positive, Field(le=256, description="bands; more find less similar texts")] = 14
    hashes_per_bucket: Annotated[Positive, Field(le=64, description="of a band; more find only more similar texts")] = 8


class FiltersConfig(Frozen):
    """Which lines, documents and pairs `prepare` leaves out; as it stands none. What is dropped is counted by reason in
    the manifest, with a sample in dropped.jsonl."""

    min_words: Annotated[Int, Field(ge=0, description="words of a line, or of each side of a pair")] = 0
    max_words: Annotated[Int, Field(ge=0, description="0 is no limit")] = 0
    min_pieces: Annotated[
        Int, Field(ge=0, description="pieces of the tokenizer in a line, or in each side of a pair")
    ] = 0
    max_pieces: Annotated[Int, Field(ge=0, description="the same; longer ones are dropped, not cut; 0 is no limit")] = 0
    max_pair_pieces: Annotated[
        Int, Field(ge=0, description="pieces of both sides of a pair together; 0 is no limit")
    ] = 0
    max_length_ratio: Annotated[
        Float, Field(ge=0, description="words of a pair's longer side to its shorter; 0 is no limit")
    ] = 0.0
    min_aligned_fraction: Annotated[
        Fraction,
        Field(description="words of both sides of a pair that its word alignment links; 0 is no limit"),
    ] = 0.0
    drop_identical: Annotated[bool, Field(description="drop pairs whose two texts are the same")] = False
    drop_duplicates: Annotated[bool, Field(description="drop lines and pairs that stood before in their pool")] = False
    near_duplicates: Annotated[
        NearDuplicatesConfig | None,
        Field(
            description="drop documents and pairs that are nearly like an earlier one of their pool; {} asks for it as "
            "datatrove sets it"
        ),
    ] = None
    drop_lines_with: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(description="drop lines and pairs that hold one of these, in capitals or not: boilerplate, markup"),
    ] = ()
    min_script_fraction: Annotated[
        Fraction, Field(description="letters in the usual script of the line's language; 0 is no limit")
    ] = 0.0
    language_threshold: Annotated[
        Fraction,
        Field(
            description="drop documents and pairs of which the language identifier says, with this probability or "
            "more, that they are in another language; 0 does not ask it (pip install 'xalign-ray[langid]')"
        ),
    ] = 0.0
    quality: QualityConfig = QualityConfig()
