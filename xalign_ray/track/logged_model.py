"""A run's export as a logged model of MLflow: by reference to its folder, nothing is copied; registered on request."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Run
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from xalign_ray.work.artifacts import read_json
from xalign_ray.work.mirror import url_of

_TYPE = "encoder"


def log_model(client: MlflowClient, run: Run, export: Path, fingerprint: str, register_as: str | None) -> LoggedModel:
    """The run's logged model, made if there is none; `mlflow.transformers.load_model` opens it as a fill-mask pipeline.

    Args:
        export: the folder that the model refers to; who loads it must see it under the same path.
        fingerprint: of the run, in the place of a hub's revision.
        register_as: name of a registered model that gets a version of it; none if null.
    """
    info, source = run.info, f"source_run_id = '{run.info.run_id}'"
    found = client.search_logged_models([info.experiment_id], filter_string=source)
    model = next(iter(found), None) or _create(client, run, export)
    if model.status != LoggedModelStatus.READY:  # new, or an outage came before its files
        model = _finish(client, model, run, export, fingerprint)
    if register_as and not client.search_model_versions(f"name = '{register_as}' and run_id = '{info.run_id}'"):
        _register(client, register_as)
        client.create_model_version(
            register_as, model.artifact_location, info.run_id, await_creation_for=0, model_id=model.model_id
        )  # nothing is copied, so it is there; else MLflow says on stdout that it waits up to 300 seconds
    return model


def _register(client: MlflowClient, name: str) -> None:
    query = f"name = '{name}'"
    if client.search_registered_models(query):
        return
    try:
        client.create_registered_model(name)
    except MlflowException:
        # Runs that end together both create it; the second finds it.
        if not client.search_registered_models(query):
            raise


def _create(client: MlflowClient, run: Run, export: Path) -> LoggedModel:
    params = {key: run.data.params[key] for key in ("method", "languages", "scale") if key in run.data.params}
    tags = {"xalign.export": url_of(export) or str(export)}
    return client.create_logged_model(
        run.info.experiment_id, run.info.run_name, run.info.run_id, tags, params, model_type=_TYPE
    )


def _finish(client: MlflowClient, model: LoggedModel, run: Run, export: Path, fingerprint: str) -> LoggedModel:
    described = Model(model_id=model.model_id, run_id=run.info.run_id)
    described.add_flavor("transformers", transformers_version=version("transformers"), **_flavor(export, fingerprint))
    with tempfile.TemporaryDirectory() as folder:
        described.save(str(Path(folder, "MLmodel")))
        client.log_model_artifacts(model.model_id, folder)
    if model.model_id not in {one.model_id for one in (run.outputs.model_outputs if run.outputs else ())}:
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def _flavor(export: Path, fingerprint: str) -> dict[str, object]:
    """As MLflow's `save_pretrained=False` writes it for a model of the hub."""
    config = read_json(export / "config.json", "Export the run again.")
    return {
        "task": "fill-mask",
        "instance_type": "FillMaskPipeline",
        "framework": "pt",
        "pipeline_model_type": config["architectures"][0],
        "source_model_name": str(export),
        "source_model_revision": fingerprint,
        "components": ["tokenizer"],
        "tokenizer_type": "PreTrainedTokenizerFast",
        "tokenizer_name": str(export),
        "tokenizer_revision": fingerprint,
    }
