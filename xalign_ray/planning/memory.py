"""The memory of a training worker at the moment of a step at which it holds most, by part, in bytes.

Tensors alone, as `torch.cuda.max_memory_allocated` counts them; `tests/parity/train/test_train_memory.py` measures them
on a CPU. Rows are taken as full, and each as one example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from xalign_ray.config.choices import HARD, PAIRS, DenoisingAlignment, ObjectiveChoice, WordExchange
from xalign_ray.config.derive import TERMS_AT_ONCE, choose_attention, derive_batch, has_flat_gradients
from xalign_ray.config.schema import RunConfig
from xalign_ray.models.sizes import encoded_by
from xalign_ray.planning.subject import Subject, labels_at_once, read_figures, shares

FP32, BF16 = 4, 2
BUCKET = 500_000_000  # gradients that DeepSpeed reduces at once, or all of a smaller model (train/engine.py)
STATISTICS = 2 * 2 * FP32  # of a token in a layer: mean and deviation of two LayerNorms
INT64, ROW_COLUMNS = 8, 17  # of a row of sentence pairs: columns of the row, and of both sides
POINTING = 4  # matrices [B, L, L] at a time: pairs of words, and their probabilities
COMPARISON = 5 * FP32 + 3  # bytes of a term of contrast and a pair that it is compared with, see `_contrast`


def state_of(config: RunConfig, parameters: int, frozen: int = 0) -> dict[str, float]:
    """Bytes that a worker holds all the time: the weights, their fp32 copy and Adam's two averages.

    Split as in ZeRO (Rajbhandari et al. 2020, section 3.1). DeepSpeed keeps the copy from stage 1 on, in fp32 too.
    Frozen weights have neither.
    """
    workers, stage = config.parallel.workers, config.parallel.zero_stage
    split = FP32 * parameters / (workers if stage else 1)
    weights = _unit(config) * (parameters + frozen) / (workers if stage == 3 else 1)
    return {"weights": weights, "fp32 master weights": split if stage else 0, "optimizer state": 2 * split}


def checkpoint_bytes(config: RunConfig, subject: Subject) -> float:
    """Of one checkpoint, all workers' files together; `checkpoint.async_save` holds as much in the hosts' memory."""
    on_one_worker = config.model_copy(update={"parallel": config.parallel.model_copy(update={"workers": 1})})
    return sum(state_of(on_one_worker, subject.trained).values()) + FP32 * subject.remembered


def memory_of(config: RunConfig, subject: Subject, on_gpu: bool) -> dict[str, float]:
    """Bytes of each part, at the moment at which their sum is largest.

    Moments are: before the first backward pass, as the last one begins, as it ends, while the weights move, and while
    scores are made.

    Args:
        config: a recipe whose rows a step are known.
        on_gpu: whether attention is done by kernels that keep no scores.
    """
    fixed = state_of(config, subject.trained, subject.frozen) | {"memory of losses": float(FP32 * subject.remembered)}
    before, forward, backward, step = _gradients(config, subject)
    head, (saved, transient, again) = _head(config, subject), _activations(config, subject, on_gpu)
    compares, holds = _contrast(config, subject)
    one_pass = derive_batch(config).accumulation == 1
    in_forward = {"activations": saved + transient + max(0, again - head), "head and loss": head, "contrast": holds}
    has_scores = _unit(config) != FP32 or config.parallel.zero_stage == 3
    moments: list[dict[str, float]] = [
        {"gradients and buffers": before, "activations": saved if one_pass else 0, "contrast": compares},
        {"gradients and buffers": forward, **in_forward},
        {"gradients and buffers": backward},
        {"gradients and buffers": step},
        {"fp32 weights of scores": FP32 * (subject.trained + subject.frozen) if has_scores else 0},
    ]
    most = max(moments, key=lambda moment: sum(moment.values()))
    return {name: size for name, size in (fixed | most).items() if size}


def host_memory_of(config: RunConfig, subject: Subject) -> dict[str, float]:
    """Bytes that a run on CPUs holds on its machine at its peak, all processes together, by part.

    A checkpoint is copied, to be written while training goes on. The driver has opened the encoder that is continued.

    Args:
        config: a recipe whose rows a step are known.
    """
    workers, figures = config.parallel.workers, read_figures()
    copied = checkpoint_bytes(config, subject) if config.checkpoint.async_save else 0
    opened = 2 * FP32 * subject.sizes.total if config.model.init_from else 0
    parts = {
        "tensors": workers * sum(memory_of(config, subject, on_gpu=False).values()),
        "a checkpoint's copy": copied,
        "Python and libraries of the workers": workers * figures.worker_bytes_on_cpu,
        "the driver": figures.driver_bytes + opened,
    }
    return {name: size for name, size in parts.items() if size}


def _contrast(config: RunConfig, subject: Subject) -> tuple[float, float]:
    """Of losses over the whole step: while their pairs are compared, and in the second of two passes.

    P pairs of 2 d numbers. While they are compared there are the vectors, their gradient, and for a block of this
    worker's terms with all pairs: cosines and log-softmax of both directions, one more on its way, three masks. In the
    second pass there is the gradient of all P vectors. Between two passes the rows of all micro-steps wait too.
    """
    batch, d = derive_batch(config), subject.values["hidden_size"]
    rows = ROW_COLUMNS * INT64 * config.data.max_seq_length * math.ceil(batch.global_rows / batch.workers)
    waiting = rows if batch.accumulation > 1 else 0
    compares = holds = 0.0
    for loss in (choice for choice in config.objectives if choice.over_step):
        pairs = pairs_of_step(config, loss.stream)
        sides = _sides(config, loss)
        terms, vectors = math.ceil(pairs / batch.workers), FP32 * 2 * d * pairs * sides
        compares += waiting + 2 * vectors + COMPARISON * loss.comparisons * min(terms, TERMS_AT_ONCE) * pairs * sides
        holds += waiting + vectors
        waiting = 0
    return compares, holds


def pairs_of_step(config: RunConfig, stream: str | None) -> float:
    """Sentence pairs of a step in a kind of stream: as in the recipe, else one a row."""
    if config.train.pairs_per_step:
        return config.train.pairs_per_step
    share = sum(share for choice, share in zip(config.streams, shares(config), strict=True) if choice.kind == stream)
    return share * derive_batch(config).global_rows


def _gradients(config: RunConfig, subject: Subject) -> tuple[float, float, float, float]:
    """Gradients with DeepSpeed's buffers at the first four moments of `memory_of`.

    The table of words is tied: as the backward pass ends there are its gradient as decoder, as input, and their sum.
    """
    parallel, unit, count = config.parallel, _unit(config), subject.trained
    stage, again = parallel.zero_stage, derive_batch(config).accumulation > 1
    words = 0 if subject.frozen else subject.sizes.word_embeddings
    full, part, table = FP32 * count, FP32 * count / parallel.workers, unit * words
    zero: Mapping[str, int] = parallel.deepspeed_overrides.get("zero_optimization", {})
    bucket = min(int(zero.get("reduce_bucket_size", BUCKET)), count)
    if stage == 0:
        number = BF16 if config.in_bf16 else FP32
        cast = BF16 * config.in_bf16 * (words if config.train.gradient_checkpointing else subject.sizes.total)
        tables = (1 if config.in_bf16 else 2 + again) * FP32 * words
        return 0, full * again + cast, full + tables, full + number * count * (parallel.workers > 1)
    if has_flat_gradients(config, count):
        held = full * again
        step = held + unit * count + max(unit * count, part if unit != FP32 else 0)  # concatenated
        return 0, held, held + unit * count + 2 * table, step
    if stage == 1:
        held, buffers = full * again, FP32 * bucket * (unit == FP32)  # bf16 gradients are added up in fp32 first
        return buffers, held + buffers, max(unit * count, held) + 2 * table + buffers, full + FP32 * bucket
    buffers, held, gathered = unit * bucket, part * again, 0.0
    if stage == 3:
        held, gathered = unit * count / parallel.workers, table * (1 - 1 / parallel.workers)
    step = max(2 * part, held + part) + buffers * (stage == 3)
    return held * (stage == 3) + buffers, held + buffers + gathered, held + 3 * table + buffers, step


def _activations(config: RunConfig, subject: Subject, on_gpu: bool) -> tuple[float, float, float]:
    """Activations kept for the backward pass of a micro-batch, transient ones in it, and recomputed ones.

    The last begins once the backward pass of the head is done.
    """
    d, unit, tokens = subject.values["hidden_size"], _unit(config), _micro_tokens(config)
    dense = _is_dense(config, subject, on_gpu)
    # Passes that keep activations: over the rows of losses that encode no side, and over the sides of pairs. A side is
    # half of a row; under a mask its padding is computed too.
    rows = int(any(not any(loss.encoded) for loss in config.objectives))
    sides = sum(bool(name) and passes > 1 for name, passes in encoded_passes(config).items()) * (1 if dense else 0.5)
    length = config.data.max_seq_length
    of_row = _kept_by_layer(config, subject, on_gpu, length)
    side = _kept_by_layer(config, subject, on_gpu, length if dense else length // 2)
    layer = rows * of_row + sides * side
    ends = (2 if dense else 4) * unit * d  # embeddings, and the last states: without padding, and where it is put back
    transient = unit * (d + subject.values["intermediate_size"])  # gradients on their way
    again = tokens * (layer + transient) if config.train.gradient_checkpointing else 0
    of_layers = subject.values["num_hidden_layers"] * ((rows + sides) * unit * d if again else layer)
    return tokens * (of_layers + (rows + sides) * ends), 0 if again else tokens * transient, again


def _kept_by_layer(config: RunConfig, subject: Subject, on_gpu: bool, length: int) -> float:
    """Bytes of a token of an example of such a length, or of a row under a mask.

    Scores are kept where a CPU's attention has dropout, a mask where attention is dense.
    """
    values, unit = subject.values, _unit(config)
    family, number = subject.family, BF16 if config.in_bf16 else FP32
    d, heads = values["hidden_size"], values["num_attention_heads"]
    saved = (
        number * (family.kept_per_token(values) + family.kept_per_row(values, length) / length)
        + STATISTICS
        + FP32 * heads
    )
    if config.in_bf16 and config.parallel.zero_stage == 0:
        # Autocast keeps LayerNorm in fp32, and casts what three layers read three times; compiled layers keep more.
        saved += (17 if config.train.torch_compile else 13) * d
    if _is_dense(config, subject, on_gpu) and on_gpu and not family.dense_only:
        saved += unit * length
    if family.has_dropout(values):
        saved += 2 * d * (1 if on_gpu else unit)
    if family.drops_attention(values):
        if family.dense_only:
            saved += (number + (1 if on_gpu else number)) * heads * length
        elif not on_gpu:
            saved += 12 * d + (2 * FP32 + 1) * heads * length
    return saved


def _head(config: RunConfig, subject: Subject) -> float:
    """Logits in fp32, where they come in bf16 that too; the states of the labels; the gradient of the decoder.

    A compiled loss needs no copy of bf16 logits in fp32.
    """
    d, vocabulary = subject.values["hidden_size"], subject.values["vocab_size"]
    tokens = _micro_tokens(config)
    labels = tokens * most(config.masking.mlm_probability)
    matrix = FP32 * config.data.max_seq_length * tokens  # which words are aligned, [B, L, L]
    pointers = sum(isinstance(loss, DenoisingAlignment) for loss in config.objectives)
    pointing = pointers * (POINTING * matrix + 4 * FP32 * d * tokens)
    heads = sum(loss.predicts_pieces for loss in config.objectives)
    if not heads:
        return pointing
    at_once = min(labels, labels_at_once(config) or labels)
    in_fp32 = not (config.in_bf16 and config.train.torch_compile)
    logits = (FP32 * in_fp32 + BF16 * config.in_bf16) * vocabulary
    exchange = sum(isinstance(loss, WordExchange) for loss in config.objectives)
    return (
        at_once * logits
        + exchange * (labels * logits + matrix)
        + pointing
        + heads * labels * 5 * _unit(config) * d
        + (BF16 if config.in_bf16 else FP32) * subject.sizes.word_embeddings
    )


def most(scheduled: float | tuple[tuple[int, float], ...]) -> float:
    """The largest value that a number which may change over the steps has."""
    return max(value for _, value in scheduled) if isinstance(scheduled, tuple) else scheduled


def _is_dense(config: RunConfig, subject: Subject, on_gpu: bool) -> bool:
    return choose_attention(config.train, on_gpu, subject.family.dense_only) == "dense"


def encoded_passes(config: RunConfig) -> dict[str, int]:
    """Forward passes of a micro-step, by the rows or the side of pairs: see `encoded` of a loss."""
    passes_by_name = encoded_by(config.objectives, derive_batch(config).accumulation)
    without = {f"{HARD}{name}" for side, name in enumerate(("key_", "query_")) if side not in config.data.negatives_of}
    return {name: passes for name, passes in passes_by_name.items() if name not in without}


def _sides(config: RunConfig, loss: ObjectiveChoice) -> float:
    """Vectors of a pair that a loss compares, in pairs: hard negatives stand beside the two sentences."""
    return 1 + (len(config.data.negatives_of) / 2 if loss.reads_negatives else 0)


def _micro_tokens(config: RunConfig) -> int:
    batch = derive_batch(config)
    return -(-batch.global_rows // (batch.workers * batch.accumulation)) * config.data.max_seq_length


def _unit(config: RunConfig) -> int:
    """Bytes of a weight, a gradient and an activation; at stage 0 autocast's weights stay in fp32."""
    return BF16 if config.in_bf16 and config.parallel.zero_stage else FP32


def run_bytes(config: RunConfig, subject: Subject) -> float:
    """Of the kept checkpoints, the best on the dev pairs, one that is being written, and the export in fp32."""
    checkpoints = config.checkpoint.save_total_limit + bool(config.data.dev or config.data.dev_fraction)
    return checkpoint_bytes(config, subject) * (checkpoints + 1) + FP32 * subject.sizes.total


def shard_bytes_per_token(config: RunConfig) -> dict[str, float]:
    """Of prepared text, and of prepared pairs, as far as the recipe reads them: measured, see figures.yaml."""
    measured = read_figures().disk_bytes_per_token
    text = any(stream.pools != PAIRS for stream in config.streams)
    pairs = any(stream.pools == PAIRS for stream in config.streams)
    linked = any(stream.needs_alignment for stream in config.streams)
    kinds = {"text": text, "pairs": pairs and not linked, "aligned pairs": linked}
    return {kind: measured[kind] for kind, is_read in kinds.items() if is_read}
