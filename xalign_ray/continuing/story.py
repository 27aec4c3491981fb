"""The story of `xalign continue`: look at encoder and data, write the recipe, pretrain, compare with the base."""

from __future__ import annotations

import os
import re
from pathlib import Path

from xalign_ray.checks import check_recipe
from xalign_ray.config.choices import MaskedLm, SentenceContrast
from xalign_ray.config.load import resolve_tree
from xalign_ray.continuing.bound import note_small_sets
from xalign_ray.continuing.compared_run import compare_run
from xalign_ray.continuing.files import look_at_data
from xalign_ray.continuing.five_lines import COMMAND_LINE, FiveLines
from xalign_ray.continuing.length import choose_steps
from xalign_ray.continuing.methods import check_replay, choose, look_at_encoder
from xalign_ray.continuing.new_languages import adds_language, pieces_a_word
from xalign_ray.continuing.recipe import Continuation, make_recipe, note_pieces, put_settings
from xalign_ray.evaluation import publish_scores
from xalign_ray.planning.describe import describe
from xalign_ray.pretraining import prepare, pretrain
from xalign_ray.results.continued_page import write_page
from xalign_ray.results.page import PAGE
from xalign_ray.sources.pair_checks import refuse_doubtful
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say


def continue_lines(lines: FiveLines, local: bool = False, trust: bool = False, rehash: bool = False) -> Path:
    """Trains, exports, compares and reports; a finished run is only opened.

    Returns:
        The run's folder.
    """
    continuation = resolve(lines)
    for note in continuation.notes:
        say(note)

    # Shards are made on Ray, also for a training without it, which then has the whole memory.
    if local:
        from xalign_ray.train.cluster import connected_briefly  # Ray, which --plan does without

        with connected_briefly():
            prepare(continuation.recipe, rehash=rehash)
    out = Path(lines.output) if lines.output else None
    run = pretrain(continuation.recipe, out, local, trust, rehash and not local)

    if os.environ.get("RANK", "0") == "0":
        compare_run(continuation, run, trust)
        compared, page = RunFolder(run).comparison, RunFolder(run).report / PAGE
        if not page.is_file() or page.stat().st_mtime_ns < compared.stat().st_mtime_ns:
            publish_scores(run)
            write_page(run)
    return run


def describe_needs(continuation: Continuation) -> str:
    """The notes on encoder and data, and the plan of its recipe."""
    check_recipe(continuation.recipe)
    return "\n".join([*continuation.notes, "", describe(continuation.recipe)])


def resolve(lines: FiveLines, opens: bool = True) -> Continuation:
    """Looks at the encoder and the data, and writes the recipe that they need; starts nothing.

    Args:
        opens: the encoder's weights too, by which the temperature of a contrast is found; a plan needs none.

    Raises:
        ConfigError: the lines, the data and the encoder do not fit together.
        DataError: a file is missing or damaged.
    """
    encoder = look_at_encoder(lines.model)
    method, why = choose(lines, encoder)
    replay = check_replay(lines, encoder, method)
    data = look_at_data(lines, encoder, method, replay)
    if lines.method == "auto" and method == "contrast" and not any(corpus.negatives for corpus in data.pairs):
        pieces = pieces_a_word(lines.model, data.pairs, ())
        if added := adds_language(encoder, data.pairs, pieces):
            method, why = "add", added
    notes = [why, *data.notes, f"Sentence vectors: {encoder.sentences.rule.words}."]

    if lines.lose_at_most:
        notes += note_small_sets(data.kept, lines.lose_at_most)

    # The recipe, with a length of 1 until it is known.
    tree = make_recipe(lines, encoder, method, replay, data, opens)
    name = re.sub(r"[^\w.-]+", "-", f"{Path(lines.model).name}-{method}")
    recipe = resolve_tree(tree | {"train": {"max_steps": 1, **tree["train"]}}, COMMAND_LINE, name, lines.set)
    config = recipe.config
    refuse_doubtful(data.checks, config.data, config.allow)
    notes += note_pieces(lines, config.data)
    if data.pairs and not data.tests:
        notes.append(
            f"{100 * config.data.test_fraction:g} % of the pairs, at most {config.data.max_test_pairs:,} of two "
            "languages, are kept out as the test (--test FILE names others)."
        )
    if config.data.dev_fraction:
        notes.append(
            f"{100 * config.data.dev_fraction:g} % of the pairs are dev pairs: the checkpoint that is best on them is "
            "exported (--dev FILE names others; --no-keep-best exports the last checkpoint)."
        )

    temperatures = [loss.temperature for loss in config.objectives if opens and isinstance(loss, SentenceContrast)]
    notes += [f"Temperature of the contrast: {temperature:g}." for temperature in temperatures]

    # The length, and held-out losses where a loss predicts words.
    trained = sum(checks.pairs for checks in data.checks[: len(data.pairs)])
    steps, sentence = choose_steps(lines, recipe, trained)
    predicts = any(isinstance(loss, MaskedLm) for loss in config.objectives)
    tree["train"] |= {"max_steps": steps, "eval_steps": None if predicts else 0}
    recipe = resolve_tree(tree, COMMAND_LINE, name, lines.set)
    train = recipe.config.train
    notes.append(sentence if train.max_steps == steps else f"{train.in_words}, as --set says.")
    put_settings(tree, lines.set, recipe)
    return Continuation(lines, recipe, tree, data, notes)
