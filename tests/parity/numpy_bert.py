"""BERT in numpy float64, written from the papers for the parity tests: slow, obvious, no code of the package."""

from __future__ import annotations

import math

import numpy as np

ERF = np.vectorize(math.erf)
EPSILON = 1e-12


def gelu(x):
    return 0.5 * x * (1 + ERF(x / math.sqrt(2)))


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * weight + bias


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(w, name, x):
    return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])


def encode_example(w, ids, positions, segments, languages, heads):
    """Hidden states [T, d] of ONE example by itself, without padding. `w` maps parameter names to arrays."""
    table = "hf.bert.embeddings."
    x = w[f"{table}word_embeddings.weight"][ids] + w[f"{table}position_embeddings.weight"][positions]
    x = x + w[f"{table}token_type_embeddings.weight"][segments]
    if "languages.weight" in w:
        x = x + w["languages.weight"][languages]
    x = norm(w, f"{table}LayerNorm", x)
    depth = 0
    while f"hf.bert.encoder.layer.{depth}.output.dense.weight" in w:
        x = layer(w, f"hf.bert.encoder.layer.{depth}.", x, heads)
        depth += 1
    return x


def layer(w, at, x, heads):
    tokens, d = x.shape
    size = d // heads
    q, k, v = (linear(w, f"{at}attention.self.{name}", x) for name in ("query", "key", "value"))
    mixed = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(tokens):
            scores = np.array([q[i, part] @ k[j, part] / math.sqrt(size) for j in range(tokens)])
            shares = np.exp(scores - scores.max())
            mixed[i, part] = (shares / shares.sum()) @ v[:, part]
    x = norm(w, f"{at}attention.output.LayerNorm", x + linear(w, f"{at}attention.output.dense", mixed))
    inner = gelu(linear(w, f"{at}intermediate.dense", x))
    return norm(w, f"{at}output.LayerNorm", x + linear(w, f"{at}output.dense", inner))


def predict(w, hidden, language=None):
    """Logits [V] of one hidden state; `language` is given where the head is conditioned (Chaudhary et al. 2020)."""
    head = "hf.cls.predictions."
    read = hidden if language is None else np.concatenate([hidden, w["languages.weight"][language]])
    t = norm(w, f"{head}transform.LayerNorm", gelu(linear(w, f"{head}transform.dense", read)))
    return w["hf.bert.embeddings.word_embeddings.weight"] @ t + w[f"{head}bias"]


def cross_entropy(logits, label):
    shifted = logits - logits.max()
    return math.log(np.exp(shifted).sum()) - shifted[label]


def masked_lm_sum(w, batch, heads, conditioned):
    """Example by example, label by label."""
    total = 0.0
    for row in range(len(batch["input_ids"])):
        for example in sorted(set(batch["example_ids"][row].tolist()) - {0}):
            at = np.flatnonzero(batch["example_ids"][row] == example)
            keys = ("input_ids", "position_ids", "segment_ids", "language_ids", "labels")
            ids, positions, segments, languages, labels = (batch[key][row][at] for key in keys)
            hidden = encode_example(w, ids, positions, segments, languages, heads)
            for i in np.flatnonzero(labels != -100):
                logits = predict(w, hidden[i], languages[i] if conditioned else None)
                total += cross_entropy(logits, labels[i])
    return total
