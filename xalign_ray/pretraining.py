"""The story of a run: load and check a recipe, prepare its data, open the run's folder, train, export."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from xalign_ray.checks import check_models, check_recipe
from xalign_ray.config.derive import (
    base_recipe,
    deciding_values,
    method_of,
    report_column,
    settle,
    with_absolute_paths,
    with_models,
    with_workers,
)
from xalign_ray.config.identity import INPUTS, inputs_of, run_fingerprint
from xalign_ray.config.load import Recipe
from xalign_ray.config.saved import (
    check_identity,
    describe_saved,
    earlier_runs,
    interrupted_commits,
    open_saved,
    run_folders,
    write_saved,
)
from xalign_ray.config.schema import ParallelConfig, RunConfig
from xalign_ray.config.sources import REPLACING
from xalign_ray.errors import DataError
from xalign_ray.exports import export_run
from xalign_ray.feed.batches import open_local
from xalign_ray.models.backbone import backbone
from xalign_ray.models.hub import at_commit
from xalign_ray.models.refusals import NEW_HEAD, check_start, check_tokenizer, draws_head
from xalign_ray.shards.planned import check_method, count_steps, facts_of
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources.inputs import check_inputs
from xalign_ray.sources.stage import InputHashes
from xalign_ray.tokens.find import find_prepared
from xalign_ray.track.destinations import check_uri, say_unread, tracks_of
from xalign_ray.track.scored_encoder import origin
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.train.progress import Progress
from xalign_ray.work import process
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.job import Job, OpenJob, open_job
from xalign_ray.work.locks import check_writable
from xalign_ray.work.mirror import check_lasting, fetch_checkpoint, is_finished, local_folder, refresh
from xalign_ray.work.run_folder import RunFolder, check_export
from xalign_ray.work.status_line import say


def pretrain(
    recipe: Recipe,
    out: Path | None = None,
    local: bool = False,
    trust: bool = False,
    rehash: bool = False,
    title: str = "",
) -> Path:
    """Trains a recipe to its last step, resuming from its newest checkpoint, and exports the encoder.

    A finished run is only opened; what is damaged of it is written again. Of the processes that torchrun starts, the
    first writes the run's folder, and the others only train.

    Args:
        out: the run folder; `<output>/<recipe>-<fingerprint>` if not given.
        local: train in this process (or in torchrun's processes) without Ray; the shards must have been prepared.
        trust: whether the files of the checkpoint that it resumes from may run code.
        rehash: read all input files again instead of trusting cached hashes.
        title: begins each line of progress, where several runs train side by side.

    Returns:
        The run folder.
    """
    # Load: the recipe with the paths, commits and workers that it runs with.
    for name in () if local else ("RANK", "WORLD_SIZE"):  # of a launcher, which a job of Ray's does without
        os.environ.pop(name, None)
    rank, size = process.launched()
    if local:
        recipe = with_workers(recipe, size)
    check_recipe(recipe)
    column = report_column(recipe)
    check_lasting("output", recipe.config.output)
    check_lasting("--out", out)
    if not title:
        output = out or recipe.config.output
        say(f"Pretraining {recipe.name}: looking for its run, shards and inputs; output is {output}.")
        say_unread(recipe.config.track.mlflow)
    if not local:
        check_named_cluster()
    out = local_folder(out) if out else None
    recipe = _resolve(recipe, out, rehash)
    tracks = tracks_of(recipe.config.track.model_dump(), recipe.config.output)
    for track in tracks:
        check_uri(track.uri)
    start = recipe.config.model.init_from
    if base := base_recipe(recipe):
        start = str(RunFolder(pretrain(base, local=local, trust=trust)).export.absolute())
    recipe = settle(recipe, start)
    check_models(recipe.config)

    # Prepare: its token shards, from which the number of steps follows.
    prepared = _find_data(recipe) if local else _make_data(recipe.config, lambda: _open_cluster(recipe, out))
    recipe = _counted(recipe, prepared)
    check_method(recipe.config, prepared)

    # Open the run: its folder is named by a hash of all that changes its result.
    saved, facts = describe_run(recipe, prepared)
    saved |= column
    folder = (out or default_folder(recipe, saved["fingerprint"])).absolute()
    if rank == 0:
        refresh(folder)
    check_identity(folder, saved)
    if _is_over(folder, rank):
        return folder
    if not out and (others := earlier_runs(folder, saved)):
        say(f"{folder.name} is a new run: with the same settings it differs from {others}.")
    waits, keep = finished_run(folder) is not None, recipe.config.checkpoint.save_total_limit
    with nullcontext(Job(folder)) if rank else open_job(folder, "pretrain", waits=waits, keep=keep) as job:
        job.identity, job.trust = facts, trust
        is_new = finished_run(folder) is None
        if is_new and not local:
            _open_cluster(recipe, out)
        if isinstance(job, OpenJob):
            write_saved(folder, saved)
            job.follow(*tracks)

        # Train.
        if is_new and local:
            from xalign_ray.train.distributed import setup_workers
            from xalign_ray.train.loop import train

            config = recipe.config
            with nullcontext() if rank else job.shown(Progress(config.train.max_steps, sys.stderr)):
                workers = setup_workers(config.parallel)
                train(job, config, prepared, lambda first, rank, _: open_local(prepared, config, first, rank), workers)
        elif is_new:
            from xalign_ray.train.on_ray import run_on_ray

            run_on_ray(job, recipe.config, prepared.folder, title)

        # Export.
        if isinstance(job, OpenJob):
            from xalign_ray.results.card import write_model_card

            if is_new or _is_damaged(folder):
                export_run(recipe, prepared, folder, facts, trust=trust)
            of_run = {key: facts[key] for key in ("recipe", "fingerprint", "seed", "data_fingerprint")}
            job.finish(of_run | {"steps": recipe.config.train.max_steps}, write_model_card)
    return folder


def prepare(recipe: Recipe, rehash: bool = False) -> Prepared:
    """Makes the token shards of a recipe, or checks and repairs those that are there.

    Args:
        rehash: read all input files again instead of trusting cached hashes.
    """
    check_recipe(recipe)
    check_lasting("output", recipe.config.output)
    say(f"Preparing {recipe.name}: looking for its shards and inputs; output is {recipe.config.output}.")
    check_named_cluster()
    recipe = _resolve(recipe, None, rehash)
    base = base_recipe(recipe)
    tokenizer = str(prepare(base).tokenizer_folder) if base else recipe.config.model.init_from
    config = settle(recipe, tokenizer).config
    if base is None:
        check_models(config)
    prepared = _make_data(config, lambda: _connect(config.parallel), verify=True)
    check_method(config, prepared)
    return prepared


def find_run(recipe: Recipe) -> Path | None:
    """The folder of a recipe's run if its shards are there, whether or not the run is; makes nothing."""
    recipe = with_commits(recipe)
    start = recipe.config.model.init_from
    if base := base_recipe(recipe):
        run = find_run(base)
        if run is None:
            return None
        refresh(run)
        if finished_run(run) is None:
            return None
        start = str(RunFolder(run).export.absolute())
    recipe = settle(recipe, start)
    prepared = find_prepared(recipe.config)
    if prepared is None:
        return None
    recipe = _counted(recipe, prepared)
    return default_folder(recipe, run_fingerprint(recipe.config, prepared.fingerprint))


def check_run(folder: Path) -> None:
    """Raises DataError if a file of a finished run that `pretrain` would write again is missing or damaged."""
    open_saved(folder)
    check_export(RunFolder(folder).export, own=True)


def forget_inputs(output: str | Path) -> None:
    """Lets the input files of an output folder's recipes be read again, to notice what size and time do not show."""
    InputHashes.of_output(output).forget()


def with_commits(recipe: Recipe, out: Path | None = None) -> Recipe:
    """The recipe with each hub model as NAME@COMMIT: of its interrupted run, else of the cache, else of the hub."""
    output = local_folder(recipe.config.output)
    folders = [out] if out else run_folders(output, recipe.name.replace("/", "-"))
    begun = interrupted_commits(recipe.config, folders)
    return replace(recipe, config=with_models(recipe.config, lambda name: begun.get(name) or at_commit(name)))


def default_folder(recipe: Recipe, fingerprint: str) -> Path:
    """The run's folder where `out` is not given: the same recipe on the same data finds its own run again."""
    return local_folder(recipe.config.output) / f"{recipe.name.replace('/', '-')}-{fingerprint[:8]}"


def describe_run(recipe: Recipe, prepared: Prepared) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a run's config.yaml, and the fields of its start event."""
    config, tokenizer = recipe.config, recipe.config.data.tokenizer
    if config.model.init_from and not isinstance(tokenizer, REPLACING):
        new = prepared.new_rows if getattr(tokenizer, "new_pieces", 0) else ()
        check_tokenizer(config.model.init_from, prepared.tokenizer_folder, new)
    saved = describe_saved(recipe, inputs_of(config, prepared.fingerprint))
    family, values = backbone(config.model, prepared.vocab_size, config.data.max_seq_length, 0)
    decided = deciding_values(config, family.dropout_in_words(values))
    if draws_head(config):
        decided["start"] += f", {NEW_HEAD}"
    return saved, {
        "recipe": recipe.name,
        "fingerprint": saved["fingerprint"],
        "seed": config.seed,
        INPUTS: saved[INPUTS],
        **facts_of(prepared, config),
        "values": decided,
        "labels": {"method": method_of(config), "languages": ",".join(config.languages)},
        "origin": origin(),
    }


def _resolve(recipe: Recipe, out: Path | None, rehash: bool) -> Recipe:
    """The recipe with absolute paths and the commits of hub models; its inputs are there."""
    recipe = with_commits(with_absolute_paths(recipe), out)
    if rehash:
        forget_inputs(local_folder(recipe.config.output))
    check_start(recipe.config)
    check_inputs(recipe.config)
    return recipe


def _find_data(recipe: Recipe) -> Prepared:
    """The shards of a recipe, for workers without Ray."""
    if (prepared := find_prepared(recipe.config)) is None:
        raise DataError(
            "The shards of this recipe are not there yet, and --no-ray does not make them: run `xalign prepare`."
        )
    return prepared


def _make_data(config: RunConfig, connect: Callable[[], None], verify: bool = False) -> Prepared:
    """The shards of a recipe, made where they are missing on the cluster that `connect` joins or starts."""
    from xalign_ray.tokens.prepare import prepare as prepare_data  # parsers, aligners and filters of raw text

    return prepare_data(config, verify, connect)


def _counted(recipe: Recipe, prepared: Prepared) -> Recipe:
    return replace(recipe, config=count_steps(recipe.config, prepared))


def _connect(parallel: ParallelConfig) -> None:
    from xalign_ray.train.cluster import connect  # Ray, which takes seconds to import

    connect(parallel)


def _open_cluster(recipe: Recipe, out: Path | None) -> None:
    """Joins or starts a cluster that can hold the run, after what can be found out without one."""
    from xalign_ray.train import capacity, cluster

    check_writable(out or local_folder(recipe.config.output))
    cluster.check_machine(recipe.config.parallel)
    cluster.connect(recipe.config.parallel)
    capacity.wait_for_room(recipe.config.parallel)


def _is_over(folder: Path, rank: int) -> bool:
    """Whether nothing is left to train, repair or publish; other ranks end where the first one does not train."""
    is_here = finished_run(folder) is not None
    if rank:
        return is_here or is_finished(folder)
    with suppress(DataError):
        if is_here:
            check_run(folder)
        return is_here and is_finished(folder)
    return False


def _is_damaged(folder: Path) -> bool:
    """Whether the export of a finished run has to be written again; prints the reason, and fetches its checkpoint."""
    try:
        check_export(RunFolder(folder).export, own=True)
    except DataError as damage:
        say(f"{damage} It is written again.")
        fetch_checkpoint(folder)
        return True
    return False
