"""What single operations cost on this GPU, each in its variants: `python tests/gpu/ops.py OUT [--device cpu] [--tiny]`.

Attention over packed examples, the decoder at odd and padded vocabularies, the loss of 15 % labels, an encoder eager
and compiled by layer, the optimizer. Forward and backward in bf16 at BERT-base's sizes and 32,768 tokens, to
OUT/ops.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from xalign_ray.models.attention import same_example
from xalign_ray.objectives.objective import summed_cross_entropy

Variant = tuple[str, Callable[[], object]]
REPEATS = 12


class Sizes:
    """BERT-base's, or next to nothing for a rehearsal."""

    def __init__(self, tiny: bool, device: str) -> None:
        self.device, self.dtype = torch.device(device), torch.bfloat16
        self.tokens, self.width, self.heads, self.depth = (512, 64, 4, 2) if tiny else (32_768, 768, 12, 12)
        self.labels = int(self.tokens * 0.15)
        self.vocabularies = (1_021, 1_024) if tiny else (119_552, 119_547, 250_048)

    def drawn(self, *shape: int, grad: bool = True) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=self.dtype).requires_grad_(grad)


def attention(sizes: Sizes, length: int) -> Iterator[Variant]:
    """Examples of `length` tokens one after the other."""
    shape = sizes.tokens, sizes.heads, sizes.width // sizes.heads
    q, k, v = (sizes.drawn(*shape) for _ in range(3))
    offsets = torch.arange(0, sizes.tokens + 1, length, device=sizes.device, dtype=torch.int32)
    gradient = sizes.drawn(*shape, grad=False)

    def flash(dropout: float) -> Tensor:
        return torch.ops.aten._flash_attention_forward(
            q, k, v, offsets, offsets, length, length, dropout, False, False
        )[0]

    def cudnn(dropout: float) -> Tensor:
        return torch.ops.aten._cudnn_attention_forward(
            q, k, v, None, offsets, offsets, length, length, True, dropout, False, False
        )[0]

    def varlen() -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        made = varlen_attn(q, k, v, offsets, offsets, length, length)
        return made if isinstance(made, Tensor) else made[0]

    def dense(dropout: float) -> Tensor:
        rows = max(sizes.tokens // 512, 1)
        packed = (one.view(rows, -1, *shape[1:]).transpose(1, 2) for one in (q, k, v))
        ids = (torch.arange(sizes.tokens, device=sizes.device) // length).view(rows, -1)
        return F.scaled_dot_product_attention(*packed, same_example(ids), dropout).transpose(1, 2).reshape(shape)

    made: dict[str, Callable[[], Tensor]] = {
        "flash op, dropout 0.1": lambda: flash(0.1),
        "flash op": lambda: flash(0.0),
        "cuDNN op, dropout 0.1": lambda: cudnn(0.1),
        "cuDNN op": lambda: cudnn(0.0),
        "varlen_attn": varlen,
        "dense mask, dropout 0.1": lambda: dense(0.1),
        "dense mask": lambda: dense(0.0),
    }
    for name, forward in made.items():
        yield name, lambda forward=forward: forward().backward(gradient)


def decoder(sizes: Sizes, vocabulary: int) -> Iterator[Variant]:
    """Logits of the labels and the gradients of states and table."""
    hidden, table = sizes.drawn(sizes.labels, sizes.width), sizes.drawn(vocabulary, sizes.width)
    bias = sizes.drawn(vocabulary)
    gradient = sizes.drawn(sizes.labels, vocabulary, grad=False)
    yield f"V {vocabulary:,}", lambda: F.linear(hidden, table, bias).backward(gradient)


def loss(sizes: Sizes, vocabulary: int) -> Iterator[Variant]:
    """Cross-entropy alone, of bf16 logits, and together with the decoder."""
    logits = sizes.drawn(sizes.labels, vocabulary)
    hidden, table = sizes.drawn(sizes.labels, sizes.width), sizes.drawn(vocabulary, sizes.width)
    labels = torch.randint(vocabulary, (sizes.labels,), device=sizes.device)

    def plain(some: Tensor) -> Tensor:
        return F.cross_entropy(some.float(), labels, reduction="sum")

    def whole(h: Tensor, t: Tensor) -> Tensor:
        return plain(F.linear(h, t))

    def decoded_in_place() -> None:
        summed_cross_entropy(F.linear(hidden, table), labels, compiled=True).backward()

    compiled, compiled_whole = torch.compile(plain), torch.compile(whole)
    yield "in place of fp32 logits", lambda: summed_cross_entropy(logits, labels).backward()
    yield "in place, compiled", lambda: summed_cross_entropy(logits, labels, compiled=True).backward()
    yield "F.cross_entropy", lambda: plain(logits).backward()
    yield "F.cross_entropy compiled", lambda: compiled(logits).backward()
    yield "decoder and in place", lambda: summed_cross_entropy(F.linear(hidden, table), labels).backward()
    yield "decoder and in place, compiled", decoded_in_place
    yield "decoder and F.cross_entropy compiled", lambda: compiled_whole(hidden, table).backward()


def encoder(sizes: Sizes) -> Iterator[Variant]:
    """Layers of BERT with the flash op; dropout 0.1 of hidden states."""
    from transformers import BertConfig, BertModel

    from xalign_ray.models.attention import by_example, implementation

    length = 128
    config = BertConfig(
        hidden_size=sizes.width, num_hidden_layers=sizes.depth, num_attention_heads=sizes.heads,
        intermediate_size=4 * sizes.width, attention_probs_dropout_prob=0.0, vocab_size=1000,
    )  # fmt: skip
    offsets = torch.arange(0, sizes.tokens + 1, length, device=sizes.device, dtype=torch.int32)
    hidden = sizes.drawn(1, sizes.tokens, sizes.width)
    for name in ("eager", "compiled by layer"):
        model = BertModel(config, add_pooling_layer=False).to(sizes.device, sizes.dtype)
        model.set_attn_implementation(implementation("varlen"))
        if name == "compiled by layer":
            for layer in model.encoder.layer:
                layer.compile()

        def both(model: BertModel = model) -> None:
            states = model.encoder(hidden, attention_mask=None, **by_example(offsets, length))[0]
            states.backward(torch.ones_like(states))

        yield name, both


def optimizer(sizes: Sizes) -> Iterator[Variant]:
    """AdamW over BERT-base with mBERT's vocabulary in fp32."""
    each, count = (10_000, 4) if sizes.tokens < 1000 else (1_000_000, 178)
    for name, fused in (("foreach", False), ("fused", True)):
        weights = [torch.randn(each, device=sizes.device, requires_grad=True) for _ in range(count)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        yield name, torch.optim.AdamW(weights, fused=fused, foreach=not fused).step


def timed(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Seconds of the first call, and the median milliseconds of a later one."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    began = time.perf_counter()
    work()
    wait()
    first = time.perf_counter() - began
    work()
    spent = []
    for _ in range(REPEATS):
        wait()
        began = time.perf_counter()
        work()
        wait()
        spent.append(time.perf_counter() - began)
    return first, statistics.median(spent) * 1e3


def main() -> None:
    """Writes the table after each group."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("out", type=Path)
    given.add_argument("--device", default="cuda")
    given.add_argument("--tiny", action="store_true")
    asked = given.parse_args()
    sizes = Sizes(asked.tiny, asked.device)
    lengths = (64,) if asked.tiny else (512, 128)
    groups: dict[str, Callable[[], Iterator[Variant]]] = {
        **{f"attention, examples of {n}": lambda n=n: attention(sizes, n) for n in lengths},
        **{f"decoder, {v:,}": lambda v=v: decoder(sizes, v) for v in sizes.vocabularies},
        **{f"loss, V {v:,}": lambda v=v: loss(sizes, v) for v in sizes.vocabularies[:1]},
        "layers": lambda: encoder(sizes),
        "AdamW": lambda: optimizer(sizes),
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    lines = ["| what | variant | ms | first call, s |", "| --- | --- | --- | --- |"]
    for group, variants in groups.items():
        for name, work in variants():
            try:
                first, median = timed(work, sizes.device)
                lines.append(f"| {group} | {name} | {median:.3f} | {first:.1f} |")
            except Exception as error:  # an operation that is not there hides no other
                lines.append(f"| {group} | {name} | failed: {' '.join(str(error).split())[:200]} | |")
        torch.cuda.empty_cache()
        (asked.out / "ops.md").write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
