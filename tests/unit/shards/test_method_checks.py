"""Data on which a method would silently be another one is refused, with an example and the word that allows it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.feed.batches import BatchReader
from xalign_ray.shards.order import Request
from xalign_ray.shards.planned import check_method

SWITCHED = "streams=[{kind: code_switched_labels}]"
ALIGNED = ["streams=[{kind: aligned_pairs}]", "objectives=[{kind: masked_lm}, {kind: word_exchange}]"]
CONTRASTED = ["streams=[{kind: contrasted_pairs}]", "objectives=[{kind: sentence_contrast}]"]


def refused(config: RunConfig, allowed: str) -> str:
    """The sentence; the same data pass where it is allowed, and where another word is, they do not."""
    prepared = prepare_here(config)
    with pytest.raises(DataError) as error:
        check_method(config, prepared)
    check_method(config.model_copy(update={"allow": (allowed,)}), prepared)
    return str(error.value)


def test_a_dictionary_that_finds_next_to_no_words_is_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "en-de.txt").write_text("".join(f"de{n} en{n}\n" for n in range(90)))  # the wrong way round
    said = refused(make_config(tmp_path, SWITCHED), "low_coverage")
    assert re.fullmatch(
        r"stream code_switched_labels: the dictionaries find 0 of [\d,]+ words of en \(0\.00%\), so that it would be "
        r"plain masked LM there\. The text has (en\d+, ){4}en\d+; the dictionaries have (de\d+, ){4}de\d+\. "
        r"Look whether the tokenizer cuts words as they do, and whether the languages are not exchanged\. If it is "
        r"meant, set allow to \[low_coverage\]\.",
        said,
    )


def test_a_plain_masked_lm_needs_no_dictionary(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "en-de.txt").write_text("".join(f"de{n} en{n}\n" for n in range(90)))
    config = make_config(tmp_path, "streams=[{kind: masked_text}]")
    check_method(config, prepare_here(config))


def test_dictionary_pairs_that_the_tokenizer_cannot_write_are_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "en-de.txt").write_text("".join(f"{chr(0x1200 + n)} {chr(0x1280 + n)}\n" for n in range(60)))
    config = make_config(tmp_path, "streams=[{kind: masked_text}]", "objectives=[{kind: dictionary_alignment}]")
    said = refused(config, "low_coverage")
    assert re.match(
        r"objective dictionary_alignment: of \d+ trained pairs of the dictionaries 0 can be written in", said
    )


def test_pairs_without_aligned_words_are_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "pairs.align").write_text("\n" * 250)
    aligned = "data.parallel.0.paths=[pairs.en, pairs.de, pairs.align]"
    said = refused(make_config(tmp_path, *ALIGNED, aligned), "unaligned_pairs")
    assert re.fullmatch(
        r"stream aligned_pairs: the \d+ pairs of de-en have 0 links between [\d,]+ words, so that nothing would be "
        r"exchanged\. They have words such as (en\d+, ){2}.*\. Look at the alignment file, or set the "
        r"corpus's align to hmm\. If it is meant, set allow to \[unaligned_pairs\]\.",
        said,
    )


def test_pairs_with_aligned_words_pass(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "pairs.align").write_text("0-0 1-1 2-2\n" * 250)
    config = make_config(tmp_path, *ALIGNED, "data.parallel.0.paths=[pairs.en, pairs.de, pairs.align]")
    check_method(config, prepare_here(config))


def test_a_contrast_whose_steps_hold_one_pair_is_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    rows = "train.global_batch_size="
    said = refused(make_config(tmp_path, *CONTRASTED, f"{rows}1"), "single_pair_steps")
    assert re.fullmatch(
        r"objective sentence_contrast tells a pair from the others of its global step, and a step holds 1(\.\d)? pairs "
        r"on average, so that most have no other\. Raise train\.global_batch_size \(it is 1\)\. If it is meant, set "
        r"allow to \[single_pair_steps\]\.",
        said,
    )
    for larger in ([f"{rows}2"], [f"{rows}0", "train.pairs_per_step=2"]):
        config = make_config(tmp_path, *CONTRASTED, *larger)
        check_method(config, prepare_here(config))


def test_a_prompt_that_rows_have_no_room_for_is_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    prompted = ["streams=[{kind: contrasted_pairs, prompt: 'en1 en2 en3 '}]", CONTRASTED[1]]
    config = make_config(tmp_path, *prompted)
    prepared = prepare_here(config)
    (prompt,) = prepared.prompts(config).values()
    pieces = prompt.pieces
    assert len(pieces) > 2
    needed = math.ceil(100 * (1 - 5 / (3 + len(pieces)))) / 100
    with pytest.raises(DataError) as error:
        check_method(config, prepared)
    assert str(error.value) == (
        f"stream contrasted_pairs: the prompt 'en1 en2 en3 ' has {len(pieces)} pieces, and rows have room for 2 before "
        f"each sentence. Set data.reserve_fraction to {needed:g} or more (it is 0.1)."
    )
    roomy = make_config(tmp_path, *prompted, f"data.reserve_fraction={needed:g}")
    prepared = prepare_here(roomy)
    check_method(roomy, prepared)
    reader = BatchReader(prepared, roomy)
    shown = 0
    for columns in map(reader, reader.requests(0, 0)):
        for ids, places in zip(columns["query_input_ids"], columns["query_position_ids"], strict=True):
            for begin in np.flatnonzero((places == 0) & (ids == prepared.special.cls)):
                assert ids[begin + 1 : begin + 1 + len(pieces)].tolist() == pieces.tolist()
                shown += 1
    assert shown > 20


def test_a_stream_of_which_no_row_would_be_drawn_is_refused(tmp_path: Path) -> None:
    """Each 32 steps have the same rows of a stream: of less than half a row there would be none, in 3,000 steps too."""
    write_inputs(tmp_path)
    mixed = "streams=[{{kind: masked_text}}, {{kind: masked_pairs, weight: {}}}]"
    config = make_config(tmp_path, mixed.format(0.001))
    prepared = prepare_here(config)
    with pytest.raises(DataError) as error:
        check_method(config, prepared)
    assert str(error.value) == (
        "stream masked_pairs would never be drawn: by its weight 0.001 it has 0.38 of the 384 rows that are drawn "
        "together (32 steps of 12). Raise its weight or train.global_batch_size."
    )
    enough = make_config(tmp_path, mixed.format(0.002))
    check_method(enough, prepared)
    reader = BatchReader(prepared, enough)
    assert 1 in reader.order.places(Request(0, 32, 0, 12)).source // 2
