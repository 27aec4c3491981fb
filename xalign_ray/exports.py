"""A run's weights as a Hugging Face folder, of any step, and the upload of that folder to the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_ray.config.load import Recipe
from xalign_ray.config.saved import open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError, TrackingError
from xalign_ray.track.follower import reason_of
from xalign_ray.work.artifacts import LOCK, MANIFEST, finished_run, whole_manifest
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import RECORD, data_of_run, fetch_checkpoint, local_folder, opened
from xalign_ray.work.run_folder import CARD, RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import shown_path

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.models.export import Facts
    from xalign_ray.models.sentence_files import SentenceFiles
    from xalign_ray.shards.prepared import Prepared


SENTENCES = "sentence-transformers"
REFUSALS = (400, 401, 403, 404)  # statuses of the hub that no second try changes


def export_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    step: int | None = None,
    out: Path | None = None,
    trust: bool = False,
    form: SentenceFiles | None = None,
    merge: float | None = None,
) -> Path:
    """Writes the weights of a run as a Hugging Face folder: of its best checkpoint on the dev pairs, or of a step.

    Without dev pairs the newest one counts as the best. With `merge` this share of them is mixed with the weights that
    the run began with; the run's own export is the mixture that its comparison chose, see `continuing/bound.py`.
    """
    from xalign_ray.models.export import export as write_export
    from xalign_ray.results.continued import read_continued  # pandas

    if merge is None and out is None and step is None and (continued := read_continued(folder)) and continued.bound:
        merge = continued.bound["share"]
    state, reached = _weights(recipe, prepared, folder, facts["fingerprint"], step, trust)
    if merge is not None:
        state = mix_weights(recipe.config, prepared, state, merge)
    target = out or (RunFolder(folder).export if step is None else RunFolder(folder).export_at(step))
    of_run: Facts = {"recipe": recipe.name, "fingerprint": facts["fingerprint"], "step": reached}
    if merge is not None:
        of_run["merge"] = merge
    write_export(state, recipe.config, prepared, target, of_run, form)
    return target


def mix_weights(
    config: RunConfig, prepared: Prepared, reached: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    """first + share * (reached - first) of each weight of the encoder (Wortsman et al. 2022, section 3).

    Rows of pieces that the encoder did not know when the run began are taken as the run reached them.

    Args:
        reached: all parameters of `EncoderWithLosses` in fp32 and whole, by their names there.
        share: in [0, 1].
    """
    import torch

    from xalign_ray.models.adapters import merged_state
    from xalign_ray.models.export import ENCODER, rows_to_make
    from xalign_ray.train.loop import build_model

    start, (added, exchanged) = build_model(config, prepared), rows_to_make(config.data.tokenizer, prepared)
    new_rows = [*added] if exchanged is None else np.flatnonzero(exchanged.counts != 1).tolist()
    hf = start.encoder.hf
    words, decoder = hf.get_input_embeddings(), hf.get_output_embeddings()
    tables = [words.weight, *(() if decoder is None else (decoder.weight, decoder.bias))]
    by_piece = {
        name
        for name, weight in start.named_parameters(remove_duplicate=False)
        if any(weight is table for table in tables)
    }
    first, mixed = merged_state(start) if config.model.lora else start.state_dict(), dict(reached)
    for name, after in reached.items():
        if name.startswith(ENCODER) and after.is_floating_point():
            mixed[name] = torch.lerp(first[name].float(), after.float(), share)
            if name in by_piece:
                mixed[name][new_rows] = after[new_rows].float()
    return mixed


def _weights(
    recipe: Recipe, prepared: Prepared, folder: Path, fingerprint: str, step: int | None, trust: bool
) -> tuple[dict[str, Tensor], int]:
    """The weights and the step they are of; at step 0 those that the seed gives, as every run of it began.

    Adapters are merged into the layers that they stand beside.
    """
    from xalign_ray.models.adapters import merged_state
    from xalign_ray.train.checkpoint import consolidate, newest
    from xalign_ray.train.loop import build_model

    lora = recipe.config.model.lora
    start = build_model(recipe.config, prepared) if step == 0 or lora else None
    if start and step == 0:
        return merged_state(start) if lora else start.state_dict(), 0
    checkpoint, damage = newest(folder, fingerprint, step, trust, best=step is None)
    steps = (finished_run(folder) or {}).get("steps", 0)
    if checkpoint is None:
        asked = "whole checkpoint to export" if step is None else f"whole checkpoint of step {step}"
        hint = f"{RunFolder(folder).checkpoints} has no {asked}; let `xalign pretrain` reach one."
        raise DataError(" ".join([*damage, hint]))
    if step is None and (damage or (checkpoint.dev is None and checkpoint.step < steps)):
        lost = damage or [f"The checkpoint of step {steps}, the last one, is not there."]
        hint = f"The newest whole checkpoint is of step {checkpoint.step}: --step {checkpoint.step} exports it."
        raise DataError(" ".join([*lost, hint]))
    state = consolidate(checkpoint)
    if start:
        start.load_state_dict(state, strict=False)  # a checkpoint has no frozen weights
        state = merged_state(start)
    return state, checkpoint.step


def sentence_form(config: RunConfig, pooling: str = "", prompts: Sequence[str] = ()) -> SentenceFiles:
    """How a run's encoder makes sentence vectors: as asked for, else as its loss pools, else as its start does.

    Args:
        pooling: "mean", "cls" or "lasttoken"; if empty, that of the first loss that pools, else of the encoder that was
            continued, else "mean".
        prompts: `NAME=TEXT` each, added to the prompts of the continued encoder; the first is the default.

    Raises:
        ConfigError: the encoder has language embeddings, or an argument cannot mean anything.
        DataError: files of the encoder that was continued are damaged.
    """
    from xalign_ray.models.open import open_encoder
    from xalign_ray.models.sentence_files import TRAINED, SentenceFiles

    if config.model.language_embeddings:
        raise ConfigError(
            f"--as {SENTENCES}: this encoder has language embeddings, and Sentence Transformers passes no language on. "
            "Continue it with model.language_embeddings: false."
        )
    if pooling not in ("", *TRAINED):
        raise ConfigError(f"--pooling {pooling}: it is {', '.join(TRAINED[:-1])} or {TRAINED[-1]}.")
    named = {}
    for prompt in prompts:
        name, equals, named[name] = prompt.partition("=")
        if not name or not equals:
            raise ConfigError(f"--prompt '{prompt}': give a name and a text, such as 'query=query: '.")
    start = config.model.init_from
    files = open_encoder(start).sentences if start else SentenceFiles("")
    of_losses = [loss.pooling for loss in config.objectives if getattr(loss, "pooling", None)]
    pooled = pooling or next(iter(of_losses), files.pooling) or "mean"
    default = next(iter(named), files.default_prompt)
    return replace(files, poolings=(pooled,), prompts={**files.prompts, **named}, default_prompt=default)


def open_data(run: Path) -> Prepared:
    """The shards that a run reads.

    Raises:
        DataError: its event log does not name them.
    """
    from xalign_ray.shards.prepared import Prepared
    from xalign_ray.track.events import newest_data

    data = newest_data(RunFolder(run).events)
    if data is None:
        raise DataError(f"{RunFolder(run).events} lacks the data that the run reads. Restore it from a copy.")
    return Prepared.open(data_of_run(run, data))


def export(
    run: str | Path,
    step: int | None = None,
    out: Path | None = None,
    trust: bool = False,
    as_: str = "",
    pooling: str = "",
    prompts: Sequence[str] = (),
    push_to: str = "",
    merge: float | None = None,
) -> Path:
    """Exports a run folder again, finished or not.

    Args:
        step: of a checkpoint that was kept, if None the best on the dev pairs, or the newest; 0 is the untrained
            encoder, the control of its run.
        out: `<run>/export` by default, for a step `<run>/export_step_<step>`.
        merge: share in [0, 1] of these weights in a mixture with those that the run began with; needs `out`.
        trust: whether the files of the checkpoint may run code.
        as_: "sentence-transformers" for a folder that Sentence Transformers opens; pooling and prompts are for it.
        push_to: `ORG/NAME`: uploads the folder to the Hugging Face hub; makes the repository, private, if need be.

    Raises:
        ConfigError: an option cannot mean anything, or the hub refuses the repository.
        TrackingError: the hub does not answer.
    """
    run, out = opened(run), local_folder(out) if out else None
    recipe, fingerprint = open_saved(run)
    if out:
        _check_replaceable(out)
    if merge is not None and not (out and 0 <= merge <= 1):
        raise ConfigError(f"--merge {merge:g}: give a share from 0 to 1, and --out DIR for the mixture.")
    if as_ not in ("", SENTENCES):
        raise ConfigError(f"--as {as_}: the other form of an export is {SENTENCES}.")
    if not as_ and (pooling or prompts):
        raise ConfigError(f"--pooling and --prompt are for sentence vectors: add --as {SENTENCES}.")
    form = sentence_form(recipe.config, pooling, prompts) if as_ else None
    what = "its best checkpoint on dev pairs, else the newest" if step is None else f"step {step}"
    say(f"Exporting {shown_path(run)}: reading {what}.")
    prepared = open_data(run)
    if step != 0:
        fetch_checkpoint(run, step)
    from xalign_ray.results.card import write_model_card

    upload = _hub(push_to) if push_to else None
    with open_job(out or run, "export", with_run=True) as job:
        if out is None and step is None:
            job.finish(card=write_model_card)  # which lies in the export that is replaced
        folder = export_run(recipe, prepared, run, {"fingerprint": fingerprint}, step, out, trust, form, merge)
    if upload:
        say(f"Pushed to {upload(folder)}.")
    return folder


def _check_replaceable(out: Path) -> None:
    """Raises ConfigError for a folder with other files than an earlier export's: a new export replaces all of them."""
    is_folder = not out.exists() or out.is_dir()
    files = (whole_manifest(out, "fingerprint", "step") or {}).get("files") if is_folder else None
    replaced = {MANIFEST, CARD, RECORD, LOCK, *(files if isinstance(files, dict) else ())}
    for path in out.rglob("*") if is_folder else [out]:
        if (path.is_symlink() or not path.is_dir()) and path.relative_to(out).as_posix() not in replaced:
            raise ConfigError(
                f"--out {shown_path(out)}: {shown_path(path)} is there, which no export wrote, and an export replaces "
                "all that is there. Name a new folder."
            )


def _hub(repository: str) -> Callable[[Path], str]:
    """Makes the repository if it is not there, and returns what uploads a folder to it and gives the commit's URL."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api = HfApi(library_name="xalign-ray")

    def ask(call: Callable[..., Any], **options: Any) -> Any:
        try:
            return call(**options)
        except HFValidationError as error:
            raise ConfigError(f"--push-to '{repository}' is no repository: {error}") from error
        except Exception as error:  # of httpx too
            if isinstance(error, HfHubHTTPError) and error.response.status_code in REFUSALS:
                raise ConfigError(
                    f"--push-to {repository} cannot be written ({reason_of(error)}). Log in by `hf auth login`, or set "
                    "HF_TOKEN to a token that may write there."
                ) from error
            raise TrackingError(
                f"The Hugging Face hub does not answer ({reason_of(error)}); run the same command again."
            ) from error

    ask(api.create_repo, repo_id=repository, private=True, exist_ok=True)
    hidden = [LOCK, RECORD]
    return lambda folder: (
        ask(api.upload_folder, repo_id=repository, folder_path=folder, ignore_patterns=hidden).commit_url
    )
