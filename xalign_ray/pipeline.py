"""A recipe, checked before anything is started, from its shards to its exported run: for verbs and studies."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.derive import (
    base_recipe,
    deciding_values,
    derive_batch,
    method_of,
    needed_recipes,
    settle,
    with_absolute_paths,
    with_models,
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
from xalign_ray.config.schema import DEMO, RunConfig
from xalign_ray.config.sources import REPLACING, GivenTokenizer
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.exports import export_run, libraries_ahead
from xalign_ray.track.follower import check_uri, say_unread, tracks_of
from xalign_ray.track.scored_encoder import origin
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.work import process
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.job import Job, OpenJob, open_job
from xalign_ray.work.locks import check_writable
from xalign_ray.work.mirror import check_lasting, fetch_checkpoint, is_finished, local_folder, refresh, url_of
from xalign_ray.work.run_folder import RunFolder, check_export
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import is_url

if TYPE_CHECKING:
    from xalign_ray.config.schema import ParallelConfig
    from xalign_ray.shards.prepared import Prepared


HIGH_RATE = 0.01  # of Adam and LAMB; published ways to continue an encoder take 1e-3 at most


def check(recipe: Recipe) -> None:
    """Whether a recipe, and those that it continues, can be run, as far as that is known without their files.

    Raises:
        ConfigError: it cannot; in the user's words.
    """
    from xalign_ray.models.continued import check_head, check_start, has_weights, inherited_from_scratch
    from xalign_ray.planning.subject import at_most, subject_of
    from xalign_ray.sources.inputs import check_codes

    for needed in reversed(needed_recipes(recipe)):
        check_codes(needed.config)
        if warning := inherited_from_scratch(needed):
            say(warning)
        if has_weights(needed.config.model.init_from):
            check_start(needed.config)
        check_head(needed.config)
        if needed.config.data.teacher:
            from xalign_ray.tokens.teacher import check_teacher

            check_teacher(needed.config)
        if needed.config.parallel.deepspeed_overrides:
            from xalign_ray.train.engine import check_overrides

            check_overrides(needed.config)
        most = at_most(needed.config)
        if needed.config.train.is_counted or 0 < most.train.global_batch_size < needed.config.parallel.workers:
            derive_batch(most)
        rate = needed.config.train.optimizer.learning_rate
        if needed.config.model.init_from and rate > HIGH_RATE:
            say(f"train.optimizer.learning_rate is {rate:g}; above {HIGH_RATE:g} an encoder forgets what it knew.")
        subject_of(needed)


def open_named(recipe: Recipe) -> str:
    """Opens what a recipe, and those that it continues, name on this machine: sources, tokenizer and encoder.

    Returns:
        What could not be looked at, in a sentence; empty if all was.

    Raises:
        ConfigError, DataError: one of them is not there, or is not what it should be.
    """
    from xalign_ray.sources.inputs import check_inputs

    unseen = ""
    for needed in map(with_absolute_paths, reversed(needed_recipes(recipe))):
        output, root = Path(needed.config.output), needed.config.data.root
        there = next((place for place in (output, *output.parents) if place.exists()), None)
        if not is_url(needed.config.output) and there and not there.is_dir():
            raise ConfigError(f"output is {needed.config.output}, and {there} is a file; name a folder.")
        if root != DEMO and not is_url(root) and not Path(root).exists():
            unseen = f"Its data.root {root} is not there: its files were not looked for."
        else:
            check_inputs(needed.config, writes_demo=False)
        if base_recipe(needed) is None:
            open_start(settle(needed, needed.config.model.init_from).config, here_only=True)
    return unseen


def open_start(config: RunConfig, here_only: bool = False) -> None:
    """Opens the tokenizer and the encoder that a recipe is given, before a cluster is; those of the hub too."""
    from xalign_ray.models.continued import check_start

    tokenizer, start = config.data.tokenizer, config.model.init_from
    if start is not None and (_is_here(start) or not here_only):
        check_start(config)  # before the imports that take seconds
    if isinstance(tokenizer, GivenTokenizer) and (_is_here(tokenizer.path) or not here_only):
        from xalign_ray.vocabulary.tokenizer_folder import check_mask, open_tokenizer

        check_mask(open_tokenizer(tokenizer.path), config)
    if start is not None and (_is_here(start) or not here_only):
        from xalign_ray.models.encoder import check_opens

        check_opens(config)


def _is_here(name: str) -> bool:
    """Whether a model's name is that of a folder, there or not; others may be hub ids, or made by `data derive`."""
    return Path(name).is_dir() or name.startswith((".", "/"))


def prepare(recipe: Recipe, rehash: bool = False) -> Prepared:
    """The token shards of a recipe: made if they do not exist, checked and repaired if they do.

    Args:
        rehash: read all input files again, whatever is remembered of them.
    """
    check(recipe)
    check_lasting("output", recipe.config.output)
    say(f"Preparing {recipe.name}: looking for its shards and inputs; output is {recipe.config.output}.")
    check_named_cluster()
    recipe = with_commits(with_absolute_paths(recipe))
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
    for name in () if local else ("RANK", "WORLD_SIZE"):  # of a launcher, which a job of Ray's does without
        os.environ.pop(name, None)
    rank, size = process.launched()
    check(recipe)
    check_lasting("output", recipe.config.output)
    check_lasting("--out", out)
    if not title and rank == 0:
        say(f"Pretraining {recipe.name}: looking for its run, shards and inputs; output is {recipe.config.output}.")
        say_unread(recipe.config.track.mlflow)
    if not local:
        check_named_cluster()
    out = local_folder(out) if out else None
    recipe = with_commits(with_absolute_paths(recipe), out)
    for track in tracks_of(recipe.config.track.model_dump(), recipe.config.output):
        check_uri(track.uri)
    if rehash:
        forget_inputs(local_folder(recipe.config.output))
    base = base_recipe(recipe)
    start = recipe.config.model.init_from
    if base:
        start = str(RunFolder(pretrain(base, local=local, trust=trust)).export.absolute())
    recipe = settle(recipe, start)
    open_start(recipe.config)
    recipe, prepared = _open_data(recipe, size) if local else _make_data(recipe, out)
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
            write_saved(folder, describe_saved(recipe, facts[INPUTS]))
            job.follow(*tracks_of(recipe.config.track.model_dump(), recipe.config.output))
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


def with_commits(recipe: Recipe, out: Path | None = None) -> Recipe:
    """The recipe with each hub model as NAME@COMMIT: of its interrupted run, else of the cache, else of the hub."""
    from xalign_ray.models.hub import at_commit

    output = local_folder(recipe.config.output)
    folders = [out] if out else run_folders(output, recipe.name.replace("/", "-"))
    begun = interrupted_commits(recipe.config, folders)
    return replace(recipe, config=with_models(recipe.config, lambda name: begun.get(name) or at_commit(name)))


def find_run(recipe: Recipe) -> Path | None:
    """The folder of a recipe's run if its shards are there, whether or not the run is; makes nothing."""
    from xalign_ray.tokens.prepare import find_prepared

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


def _open_data(recipe: Recipe, workers: int) -> tuple[Recipe, Prepared]:
    """The recipe for the workers that a launcher has started, with its steps counted, and its shards."""
    from xalign_ray.tokens.prepare import find_prepared

    parallel = recipe.config.parallel.model_copy(update={"workers": workers})
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
    saved = describe_saved(recipe, inputs_of(recipe.config, prepared.fingerprint))
    folder = (out or default_folder(recipe, saved["fingerprint"])).absolute()
    if rank == 0:
        refresh(folder)
    check_identity(folder, saved)
    if rank == 0 and not out and (others := earlier_runs(folder, saved)):
        say(f"{folder.name} is a new run: with the same settings it differs from {others}.")
    from xalign_ray.models.continued import NEW_HEAD, draws_head

    family, values = backbone(recipe.config.model, prepared.vocab_size, recipe.config.data.max_seq_length, 0)
    decided = deciding_values(recipe.config, family.dropout_in_words(values))
    facts = {
        "recipe": recipe.name,
        "fingerprint": saved["fingerprint"],
        "seed": recipe.config.seed,
        INPUTS: saved[INPUTS],
        **facts_of(prepared, recipe.config),
        "values": decided | ({"start": f"{decided['start']}, {NEW_HEAD}"} if draws_head(recipe.config) else {}),
        "labels": {"method": method_of(recipe.config), "languages": ",".join(recipe.config.languages)},
        "origin": origin(),
    }
    return folder, facts


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
            write_saved(folder, describe_saved(recipe, facts[INPUTS]))
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
