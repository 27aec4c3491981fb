"""The panels of the dashboard: what each asks Prometheus, in gauges of the closed list and in Ray's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xalign_ray.config.choices import OBJECTIVES
from xalign_ray.track.events import CELLS, GAUGES, METRICS, PREFIX, gauge_of

RAY = "ray_"  # what Ray puts before the name of every gauge


@dataclass(frozen=True)
class Query:
    """What a line of a panel shows; `legend` names tags in double braces."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel. needs_gpu: its numbers exist on machines with GPUs alone, so it is empty on others."""

    title: str
    unit: str  # as Grafana calls it
    queries: Sequence[Query]
    about: str
    needs_gpu: bool = False


def metric(name: str) -> str:
    """The selector of a metric of the event log, for the runs that the dashboard's variable names."""
    gauge, tags = gauge_of(name)
    return selector(gauge, **tags, run="$run")


def own(name: str) -> str:
    """The same of a gauge that is no metric of the event log."""
    return selector(PREFIX + name, run="$run")


def ray(name: str, **tags: str) -> str:
    """A gauge of Ray's own about its nodes."""
    return RAY + name + _braced(tags)


def selector(gauge: str, **tags: str) -> str:
    """A gauge of ours where its tags match."""
    assert gauge in GAUGES or gauge == CELLS, f"{gauge} is not in track/events.py"
    return RAY + gauge + _braced(tags)


def _braced(tags: dict[str, str]) -> str:
    matchers = ", ".join(f'{key}=~"{value}"' for key, value in tags.items())
    return f"{{{matchers}}}" if matchers else ""


def of(value: str, *tags: str) -> str:
    """A value a run and tag: Ray's tags of node, process and session left out."""
    return f"max by ({', '.join(('run', *tags))}) ({value})"


def _of_runs(*shown: tuple[str, str], tag: str = "") -> list[Query]:
    """Queries of selectors with a word for each; `tag` is a further tag that has a line each."""
    tags = [tag] if tag else []
    named = "".join(f" {{{{{name}}}}}" for name in tags)
    return [Query(of(metric, *tags), f"{{{{run}}}}{named} {word}".strip()) for metric, word in shown]


_TOKENS = of(own("tokens_by_language"), "language")
SHARE = f"{_TOKENS} / on (run) group_left () sum by (run) ({_TOKENS})"
AGE = f"time() - {of(own('event_time_seconds'), 'event')}"

ROWS: dict[str, list[Panel]] = {
    "Training": [
        Panel("Throughput", "short", _of_runs((metric("train/tokens_per_s"), "")), "Tokens a second, without padding."),
        Panel(
            "Progress",
            "percentunit",
            [Query(f"{of(own('step'))} / {of(own('steps'))}", "{{run}}")],
            "Steps done, of all of the run.",
        ),
        Panel(
            "Time of a step",
            "ms",
            _of_runs((metric("train/step_ms"), "step"), (metric("train/data_wait_ms"), "rank 0 waits for data")),
            "Mean since the last step event.",
        ),
        Panel(
            "Loss",
            "short",
            _of_runs((metric("train/loss"), "train"), (metric("held_out/loss"), "held out")),
            "Weighted sum of the objectives, and the masked-LM loss on held-out rows.",
        ),
        Panel(
            "Loss by objective",
            "short",
            _of_runs((own("train_loss_by_objective"), ""), tag="objective"),
            "Before the weights.",
        ),
        Panel(
            "Held-out loss by language",
            "short",
            _of_runs((own("held_out_loss_by_language"), ""), tag="language"),
            "In nats a label.",
        ),
        Panel(
            "Retrieval",
            "percentunit",
            [
                *_of_runs((metric("retrieval/accuracy"), "mean")),
                *_of_runs((own("retrieval_accuracy_by_language"), ""), tag="language"),
            ],
            "Translations found among the test pairs of data.tests; step 0 is the model before training.",
        ),
        Panel("Learning rate", "sci", _of_runs((metric("train/learning_rate"), "")), "As the step used it."),
        Panel("Gradient norm", "short", _of_runs((metric("train/gradient_norm"), "")), "Before clipping."),
        Panel(
            "Operations",
            "short",
            _of_runs((metric("train/tflops"), "")),
            "TFLOP/s that the model needs, of each worker.",
        ),
        Panel(
            "MFU",
            "percentunit",
            _of_runs((metric("train/mfu"), "")),
            "TFLOP/s over what the GPU could do at most; nothing for devices not known.",
            needs_gpu=True,
        ),
    ],
    "Data": [
        Panel(
            "Data wait by rank",
            "ms",
            _of_runs((own("data_wait_ms_by_rank"), ""), tag="rank"),
            "Mean of a step since the last step event.",
        ),
        Panel(
            "Wait for other workers by rank",
            "ms",
            _of_runs((own("held_up_ms_by_rank"), ""), tag="rank"),
            "A rank that never waits while the others do holds them up.",
        ),
        Panel(
            "Tokens by language",
            "percentunit",
            [
                Query(SHARE, "{{run}} {{language}}"),
                Query(of(own("planned_token_share"), "language"), "{{run}} {{language}} planned"),
            ],
            "Shares since the start of the attempt, and those planned for the whole run.",
        ),
        Panel(
            "Rows and tokens",
            "short",
            _of_runs((metric("data/rows"), "rows"), (metric("data/tokens"), "tokens")),
            "Since the start of the attempt.",
        ),
        Panel(
            "Padding and labels of other languages",
            "percentunit",
            _of_runs(
                (metric("train/padding_share"), "padding"),
                (metric("train/cross_lingual_label_share"), "cross-lingual labels"),
            ),
            "Shares of positions and of labels.",
        ),
        Panel(
            "Bad lines by reason",
            "short",
            [
                *_of_runs((own("data_bad_lines_by_reason"), ""), tag="reason"),
                *_of_runs((metric("data/bad_lines"), "all")),
            ],
            "What prepare set aside; bad_rows.jsonl names file and line.",
        ),
        Panel(
            "Bad lines against the limit",
            "percentunit",
            _of_runs((metric("data/bad_line_share"), "bad"), (own("data_bad_line_limit"), "limit")),
            "Of all lines of the sources; the limit is data.max_bad_fraction.",
        ),
    ],
    "Checkpoints": [
        Panel(
            "Checkpoint times",
            "s",
            _of_runs(
                (metric("checkpoint/save_s"), "training stands still"),
                (metric("checkpoint/write_s"), "until it is whole"),
            ),
            "Of the newest checkpoint.",
        ),
        Panel(
            "Checkpoint size", "decmbytes", _of_runs((metric("checkpoint/size_mb"), "")), "Of the newest checkpoint."
        ),
        Panel("Time since", "s", [Query(AGE, "{{run}} {{event}}")], "Since the newest event of each kind."),
    ],
    "Machines": [
        Panel(
            "Memory of training",
            "decmbytes",
            _of_runs((metric("train/peak_memory_mb"), "rank 0")),
            "Peak of rank 0's device, on CPU of its process.",
        ),
        Panel(
            "Memory of hosts",
            "bytes",
            [
                Query(f"max by (ip) ({ray('node_mem_used')})", "{{ip}} used"),
                Query(f"max by (ip) ({ray('node_mem_total')})", "{{ip}} all"),
            ],
            "Of each node, as Ray sees it.",
        ),
        Panel(
            "Memory of GPUs",
            "decmbytes",
            [Query(f"max by (ip, GpuIndex) ({ray('node_gram_used')})", "{{ip}} GPU {{GpuIndex}}")],
            "Of each GPU, as Ray sees it.",
            needs_gpu=True,
        ),
        Panel(
            "Use of GPUs",
            "percent",
            [Query(f"max by (ip, GpuIndex) ({ray('node_gpus_utilization')})", "{{ip}} GPU {{GpuIndex}}")],
            "Of each GPU, as Ray sees it.",
            needs_gpu=True,
        ),
        Panel(
            "Use of CPUs",
            "percent",
            [Query(f"max by (ip) ({ray('node_cpu_utilization')})", "{{ip}}")],
            "Of each node, as Ray sees it.",
        ),
        Panel(
            "Object store",
            "bytes",
            [
                Query(f"sum by (NodeAddress) ({ray('object_store_used_memory')})", "{{NodeAddress}} used"),
                Query(f"sum by (NodeAddress) ({ray('object_store_available_memory')})", "{{NodeAddress}} free"),
                Query(
                    f"sum by (NodeAddress) ({ray('object_store_memory', Location='SPILLED')})",
                    "{{NodeAddress}} spilled",
                ),
            ],
            "Of each node; the feed's blocks lie there.",
        ),
    ],
    "Studies": [
        Panel(
            "Cells by state",
            "short",
            [Query(f"max by (study, state) ({selector(CELLS)})", "{{study}} {{state}}")],
            "Pretrainings, fine-tunings and evaluations.",
        ),
    ],
}
PANELS = [panel for panels in ROWS.values() for panel in panels]

# Metrics of the list that no panel shows, and why.
NOT_SHOWN = {
    "train/labels": "follows from tokens",
    "data/fallback_words": "streams that replace words alone have it",
    **{name: "one loss alone has it" for loss in OBJECTIVES.values() for name in loss.metrics},
    **{name: "of a fine-tuning, whose log no driver follows" for name in METRICS if name.startswith("fine_tune/")},
    **{name: "Ray has it of every node" for name in METRICS if name.startswith("system/")},
    "run/cpu_seconds": "known when a command has ended",
    "run/peak_memory_mb": "known when a command has ended",
    "run/seconds": "known when a run has ended",
    "run/worker_hours": "known when a run has ended",
    "run/tokens": "known when a run has ended",
    "run/tokens_per_s": "known when a run has ended",
}
