"""The closed list of a run's metric names: what the event log may hold. Those of scores are in their tasks."""

from __future__ import annotations

from xalign_ray.config.choices import OBJECTIVES, PLUGGED_OBJECTIVES

EVENTS: dict[str, str] = {
    "start": "an attempt begins or resumes after `step` finished steps; carries recipe, fingerprint, attempt, steps, "
    "the share of tokens planned for each language, the bad rows that `prepare` set aside, and the host of each rank",
    "step": "an optimizer step has finished; carries batch_hash and the train/ metrics",
    "held_out": "held-out rows were scored; carries held_out/ metrics and the loss per language",
    "retrieval": "retrieval on data.tests was scored; carries retrieval/ metrics and the accuracy per language; step 0 "
    "is the model before training",
    "profile": "some steps were looked at closely; carries their number and the summary of where their time went",
    "data": "counters of the feed since the start of this attempt, the tokens of each language, and each rank's wait "
    "for its rows and for the other ranks; twice a minute",
    "straggler": "a worker holds the others up; carries the sentence that names it; as often as data",
    "checkpoint": "a checkpoint has its manifest; carries its path",
    "not_finite": "the loss or the gradient of a step is not finite; carries the sentence; the attempt ends with it",
    "stalled": "a step did not end in time; carries the sentence that names the worker; the attempt ends with it",
    "stopped": "the job was told to stop, and the step is saved; carries the signal",
    "end": "the last step is done and its checkpoint written; carries the run/ metrics",
}

METRICS: dict[str, str] = {
    "train/loss": "weighted sum of the objectives (nats), normalised over the global step",
    **{f"train/loss_{kind}": f"{loss.meaning}, before its weight" for kind, loss in OBJECTIVES.items()},
    "train/learning_rate": "learning rate that the step used",
    "train/gradient_norm": "global gradient norm (L2) before clipping; absent where the engine has none",
    "train/labels": "labels in the global step (count)",
    "train/cross_lingual_label_share": "labels in another language than their input, of all labels (0 to 1)",
    "train/tokens_per_s": "tokens of all ranks, without padding, over the wall time of the step (1/s)",
    "train/tflops": "operations that the model needs for the step, over its wall time and the workers (TFLOP/s)",
    "train/mfu": "train/tflops over the GPU's peak in the recipe's precision (0 to 1); absent for devices not known",
    "train/padding_share": "positions that are padding, of all positions (0 to 1)",
    "train/step_ms": "wall time of the step, waiting for data included (ms)",
    "train/data_wait_ms": "time in which rank 0 waited for the feed (ms)",
    "train/peak_memory_mb": "peak memory of rank 0's device, on CPU of its process (MB)",
    **{name: meaning for loss in OBJECTIVES.values() for name, meaning in loss.metrics.items()},
    "held_out/loss": "masked-LM loss on held-out rows (nats a label), mean over languages",
    "retrieval/accuracy": "sentences of data.tests that find their translation by cosine, mean of both directions and "
    "of languages (0 to 1)",
    "data/rows": "rows delivered (count)",
    "data/tokens": "tokens delivered, without padding (count)",
    "data/fallback_words": "words left as they were in a step: translation did not fit (count)",
    "data/bad_lines": "bad input lines (count)",
    "data/bad_line_share": "bad input lines, of all input lines (0 to 1)",
    "system/cpu_utilization_percentage": "how busy the CPUs of rank 0's host are (0 to 100)",
    "system/system_memory_usage_megabytes": "memory in use on rank 0's host (MB)",
    "system/system_memory_usage_percentage": "the same, of all that it has (0 to 100)",
    "system/gpu_memory_usage_megabytes": "memory in use on rank 0's GPU, by all processes (MB)",
    "system/gpu_memory_usage_percentage": "the same, of all that it has (0 to 100)",
    "checkpoint/save_s": "time in which training stood still for the checkpoint (s)",
    "checkpoint/write_s": "time from the state's copy until the checkpoint was whole on the disk (s)",
    "checkpoint/size_mb": "size of the checkpoint folder (MB)",
    "run/seconds": "wall time of this attempt from its first to its last step (s)",
    "run/worker_hours": "wall time of this attempt times its training processes (h)",
    "run/tokens": "tokens trained on along the surviving lineage (count)",
    "run/tokens_per_s": "tokens over wall time of this attempt (1/s)",
    "fine_tune/loss": "fine-tuning loss (nats)",
    "fine_tune/learning_rate": "learning rate of fine-tuning",
    "fine_tune/dev_score": "score on the English development set, in the task's own metric (0 to 1)",
}


def is_known(metric: str) -> bool:
    """Whether an event may hold it: it is in METRICS, or of a loss that a plug-in has brought."""
    return metric in METRICS or any(
        metric == f"train/loss_{kind}" or metric in loss.metrics for kind, loss in PLUGGED_OBJECTIVES.items()
    )
