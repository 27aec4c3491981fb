"""A recipe from its shards to its exported run: what `prepare`, `pretrain`, `continue` and studies do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xalign_ray.checks import check, open_start
from xalign_ray.config.derive import deciding_values, method_of, plugin_hashes, run_fingerprint
from xalign_ray.config.load import Recipe, check_identity, earlier_runs, open_saved
from xalign_ray.config.sources import REPLACING
from xalign_ray.config.start import base_recipe, settle, with_absolute_paths
from xalign_ray.errors import DataError
from xalign_ray.exports import export_run, libraries_ahead
from xalign_ray.hub import hub_track, make_repository
from xalign_ray.track.follower import check_uri, tracks_of
from xalign_ray.track.scored_encoder import origin
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.work.artifacts import finished_run, write_atomic
from xalign_ray.work.job import Job, OpenJob, open_job
from xalign_ray.work.locks import check_writable
from xalign_ray.work.mirror import check_lasting, fetch_checkpoint, is_finished, local_folder, refresh, url_of
from xalign_ray.work.run_folder import RunFolder, check_export
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.config.schema import ParallelConfig
    from xalign_ray.shards.prepared import Prepared


def prepare(recipe: Recipe, rehash: bool = False) -> Prepared:
    """The token shards of a recipe: made if they do not exist, checked and repaired if they do.

    Args:
        rehash: read all input files again, whatever is remembered of them.
    """
    check(recipe)
    check_lasting("output", recipe.config.output)
    say(f"Preparing {recipe.name}: looking for its shards and inputs; output is {recipe.config.output}.")
    check_named_cluster()
    recipe = with_absolute_paths(recipe)
    from xalign_ray.sources.inputs import check_inputs

    if rehash:
        forget_inputs(local_folder(recipe.config.output))
    check_inputs(recipe.config)  # before the imports that take seconds
    from xalign_ray.shards.planned import check_method
    from xalign_ray.tokens.prepare import prepare as prepare_data

    base = base_recipe(recipe)
    tokenizer = str(prepare(base).tokenizer_folder) if base else recipe.config.model.init_from
    config = settle(recipe, tokenizer).config
    if base is None:
        open_start(config)
    prepared = prepare_data(config, verify=True, connect=lambda: _connect(recipe.config.parallel))
    check_method(config, prepared)
    return prepared


def _connect(parallel: ParallelConfig) -> None:
    from xalign_ray.train.driver import connect  # torch and Ray, which take seconds to import

    connect(parallel)


def pretrain(
    recipe: Recipe,
    out: Path | None = None,
    local: bool = False,
    trust: bool = False,
    rehash: bool = False,
    title: str = "",
) -> Path:
    """Trains a recipe to its last step, from its newest checkpoint if there is one, and exports it.

    Args:
        out: the run folder; `<output>/<recipe>-<fingerprint>` if not given.
        local: train in this process (or in torchrun's processes) without Ray; the shards must have been prepared.
        trust: whether the files of a checkpoint that it goes on from may run code.
        rehash: read all input files again, whatever is remembered of them.
        title: begins each line of progress, where several runs train side by side.

    Returns:
        The run folder. A finished one is returned as it is.
    """
    check(recipe)
    check_lasting("output", recipe.config.output)
    check_lasting("--out", out)
    if not title and os.environ.get("RANK", "0") == "0":
        say(f"Pretraining {recipe.name}: looking for its run, shards and inputs; output is {recipe.config.output}.")
    if not local:
        check_named_cluster()
    recipe, out = with_absolute_paths(recipe), local_folder(out) if out else None
    for track in tracks_of(recipe.config.track.model_dump(), recipe.config.output):
        check_uri(track.uri)
    if recipe.config.track.hub and os.environ.get("RANK", "0") == "0":
        make_repository(recipe.config.track.hub)
    if rehash:
        forget_inputs(local_folder(recipe.config.output))
    base = base_recipe(recipe)
    start = recipe.config.model.init_from
    if base:
        start = str(RunFolder(pretrain(base, local=local, trust=trust)).export.absolute())
    recipe = settle(recipe, start)
    open_start(recipe.config)
    rank = int(os.environ.get("RANK", "0")) if local else 0
    recipe, prepared = _open_data(recipe) if local else _make_data(recipe, out)
    folder, facts = _describe_run(recipe, prepared, out, rank)
    if _is_over(folder, rank):
        if rank == 0:
            _repair_run(recipe, prepared, folder, facts, trust)
        return folder
    if rank > 0:
        _train_here(recipe, prepared, Job(folder, facts, trust=trust))
        return folder
    with open_job(folder, "pretrain", waits=False, keep=recipe.config.checkpoint.save_total_limit) as job:
        if finished_run(folder) is None:
            job.identity, job.trust = facts, trust
            if not local:
                _open_cluster(recipe, out)
            _write_config(recipe, folder, facts)
            trackers = tracks_of(recipe.config.track.model_dump(), recipe.config.output)
            job.follow(*trackers, hub_track(recipe.config.track.hub))
            if local:
                _train_here(recipe, prepared, job)
            else:
                _train_on_ray(recipe, prepared, job, title)
            _finish_run(recipe, prepared, job)
    return folder


def forget_inputs(output: str | Path) -> None:
    """Lets the input files of an output folder's recipes be read again, to notice what size and time do not show."""
    from xalign_ray.sources.stage import InputHashes

    InputHashes.of_output(output).forget()


def find_run(recipe: Recipe) -> Path | None:
    """The folder of a recipe's run if its shards are there, whether or not the run is; makes nothing."""
    from xalign_ray.tokens.prepare import find_prepared

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


def _counted(recipe: Recipe, prepared: Prepared) -> Recipe:
    from xalign_ray.shards.planned import count_steps

    return replace(recipe, config=count_steps(recipe.config, prepared))


def _make_data(recipe: Recipe, out: Path | None) -> tuple[Recipe, Prepared]:
    """The recipe with its steps counted, and its shards, made where they are missing."""
    from xalign_ray.sources.inputs import check_inputs

    check_inputs(recipe.config)
    from xalign_ray.tokens.prepare import prepare as prepare_data

    prepared = prepare_data(recipe.config, connect=lambda: _open_cluster(recipe, out))
    return _counted(recipe, prepared), prepared


def _open_data(recipe: Recipe) -> tuple[Recipe, Prepared]:
    """The recipe for the workers that a launcher has started, with its steps counted, and its shards."""
    from xalign_ray.tokens.prepare import find_prepared

    parallel = recipe.config.parallel.model_copy(update={"workers": int(os.environ.get("WORLD_SIZE", "1"))})
    recipe = replace(recipe, config=recipe.config.model_copy(update={"parallel": parallel}))
    prepared = find_prepared(recipe.config)
    if prepared is None:
        raise DataError(
            "The shards of this recipe are not there yet, and --no-ray does not make them: run `xalign prepare`."
        )
    return _counted(recipe, prepared), prepared


def _open_cluster(recipe: Recipe, out: Path | None) -> None:
    """Joins or starts a cluster that can hold the run; what can be known without one is found out before."""
    from xalign_ray.train import capacity, driver

    check_writable(out or local_folder(recipe.config.output))
    driver.check_machine(recipe.config.parallel)
    driver.connect(recipe.config.parallel)
    capacity.wait_for_room(recipe.config.parallel)


def _train_on_ray(recipe: Recipe, prepared: Prepared, job: OpenJob, title: str) -> None:
    from xalign_ray.train.driver import run_on_ray

    with libraries_ahead(job.events):
        run_on_ray(job, recipe.config, prepared.folder, title)


def _train_here(recipe: Recipe, prepared: Prepared, job: Job) -> None:
    from xalign_ray.feed.batches import open_local
    from xalign_ray.train.distributed import setup_workers
    from xalign_ray.train.loop import train
    from xalign_ray.train.progress import Progress

    config = recipe.config
    shown = job.shown(Progress(config.train.max_steps, sys.stderr)) if isinstance(job, OpenJob) else nullcontext()
    with shown:
        workers = setup_workers(config.parallel)
        train(job, config, prepared, lambda first, rank, _: open_local(prepared, config, first, rank), workers)


def _is_over(folder: Path, rank: int = 0) -> bool:
    """Whether nothing is left to do for a run, not even to publish it; other ranks end where the first one does."""
    finished = finished_run(folder) is not None
    if url_of(folder) is None:
        return finished
    return (finished and is_finished(folder)) if rank == 0 else (finished or is_finished(folder))


def _describe_run(recipe: Recipe, prepared: Prepared, out: Path | None, rank: int = 0) -> tuple[Path, dict[str, Any]]:
    """The folder of a run and what its start event says; writes nothing but what it finds in a store."""
    from xalign_ray.models.backbone import backbone
    from xalign_ray.shards.planned import check_method, facts_of

    check_method(recipe.config, prepared)
    if recipe.config.model.init_from and not isinstance(recipe.config.data.tokenizer, REPLACING):
        from xalign_ray.models.backbone import check_tokenizer

        new = prepared.new_rows if getattr(recipe.config.data.tokenizer, "new_pieces", 0) else ()
        check_tokenizer(recipe.config.model.init_from, prepared.tokenizer_folder, new)
    fingerprint = run_fingerprint(recipe.config, prepared.fingerprint)
    folder = (out or default_folder(recipe, fingerprint)).absolute()
    if rank == 0:
        refresh(folder)
    code = plugin_hashes(recipe.config)
    check_identity(folder, fingerprint, code)
    if rank == 0 and code and not out and (others := earlier_runs(folder)):
        say(f"{folder.name} is a new run. Settings, data or the files of {', '.join(code)} differ from: {others}.")
    family, values = backbone(recipe.config.model, prepared.vocab_size, recipe.config.data.max_seq_length, 0)
    facts = {
        "recipe": recipe.name,
        "fingerprint": fingerprint,
        "seed": recipe.config.seed,
        "plugins": code,
        **facts_of(prepared, recipe.config),
        "values": deciding_values(recipe.config, family.dropout_in_words(values)),
        "labels": {"method": method_of(recipe.config), "languages": ",".join(recipe.config.languages)},
        "origin": origin(),
    }
    return folder, facts


def _write_config(recipe: Recipe, folder: Path, facts: Mapping[str, Any]) -> None:
    said = {"recipe": recipe.name, "fingerprint": facts["fingerprint"], **recipe.config.model_dump(mode="json")}
    write_atomic(RunFolder(folder).config, yaml.safe_dump(said, sort_keys=False, allow_unicode=True))


def default_folder(recipe: Recipe, fingerprint: str) -> Path:
    """Where a run goes unless `out` says otherwise: the same recipe on the same data finds its own run again."""
    return local_folder(recipe.config.output) / f"{recipe.name.replace('/', '-')}-{fingerprint[:8]}"


def _repair_run(recipe: Recipe, prepared: Prepared, folder: Path, facts: dict[str, Any], trust: bool) -> None:
    """Repairs what is missing or damaged of a finished run: its config.yaml, its export."""
    from xalign_ray.results.card import write_model_card

    with suppress(DataError):
        return check_run(folder)
    with open_job(folder, "pretrain") as job:
        try:
            open_saved(folder)
        except DataError as damage:
            say(f"{damage} It is written again.")
            _write_config(recipe, folder, facts)
        try:
            check_export(RunFolder(folder).export, own=True)
        except DataError as damage:
            say(f"{damage} It is written again.")
            fetch_checkpoint(folder)
            export_run(recipe, prepared, folder, facts, trust=trust)
            job.finish(card=write_model_card)


def check_run(folder: Path) -> None:
    """Raises DataError if a file of a finished run that `pretrain` would write again is missing or damaged."""
    open_saved(folder)
    check_export(RunFolder(folder).export, own=True)


def _finish_run(recipe: Recipe, prepared: Prepared, job: OpenJob) -> None:
    from xalign_ray.results.card import write_model_card

    export_run(recipe, prepared, job.folder, dict(job.identity), trust=job.trust)
    facts = {key: job.identity[key] for key in ("recipe", "fingerprint", "seed", "data_fingerprint")}
    job.finish(facts | {"steps": recipe.config.train.max_steps}, write_model_card)
