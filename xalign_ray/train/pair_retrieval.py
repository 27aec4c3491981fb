"""Retrieval accuracy on the recipe's tests, a number for each pair of languages, while training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from xalign_ray.layout import NOT_PREDICTED
from xalign_ray.models.nearest import find_translations, thin
from xalign_ray.text.language_codes import name_of_pair
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.micro_batch import RankBatch, tensors

MAX_PAIRS = 1_000  # of two languages: more are thinned evenly, since this is done many times

Ids = NDArray[np.int32]


class TestPairs(Protocol):
    """Token ids of sentence pairs, with special tokens; `data.retrieval_tests.RetrievalPairs` is one."""

    @property
    def language(self) -> str: ...
    @property
    def other_language(self) -> str: ...
    @property
    def first(self) -> Sequence[Ids]: ...
    @property
    def second(self) -> Sequence[Ids]: ...


def retrieval_accuracies(
    engine: Engine,
    tests: Sequence[TestPairs],
    languages: Sequence[str],
    workers: Workers,
    pooling: str,
    max_tokens: int,
) -> dict[str, float]:
    """Share of sentences that find their translation by cosine, mean of both directions; called by all ranks.

    Sentences are spread over the ranks, their vectors gathered; every rank calls the encoder equally often.

    Args:
        languages: the run's languages in order.
        pooling: how a vector is made of the last layer, "mean" or "cls".
        max_tokens: of a rank's forward pass, padding included; at least one sentence goes in.

    Returns:
        The accuracy by the names that `name_of_pair` gives.
    """
    found = {}
    with engine.scoring():
        for test in tests:
            chosen = thin(len(test.first), MAX_PAIRS)
            texts = [[ids[index] for index in chosen] for ids in (test.first, test.second)]
            codes = [languages.index(code) if code in languages else 0 for code in (test.language, test.other_language)]
            of_sentence = np.repeat(np.array(codes), len(chosen))
            vectors = _vectors(engine, [*texts[0], *texts[1]], of_sentence, workers, pooling, max_tokens)
            first, second = vectors.double().chunk(2)  # a product in fp32 may be in TF32, as the recipe says
            right = find_translations(first, second, (_numbers(texts[0]), _numbers(texts[1])), device=str(first.device))
            found[name_of_pair(test.language, test.other_language)] = float(right.mean())
    return found


def _vectors(
    engine: Engine,
    sentences: Sequence[Ids],
    languages: NDArray[np.integer],
    workers: Workers,
    pooling: str,
    max_tokens: int,
) -> torch.Tensor:
    """A vector for each sentence, fp32 [N, d] on the device, equal on all ranks."""
    lengths = np.array([len(ids) for ids in sentences])
    shares = [*_shares(lengths, workers.size, max_tokens)]
    own = []
    for of_ranks in shares:
        width = lengths[np.concatenate(of_ranks)].max()
        mine = of_ranks[workers.rank]
        rows = _rows([sentences[place] for place in mine], languages[mine], width)
        batch = tensors(rows, workers.device)
        own.append(engine.forward(batch, (workers.rank, workers.size), 0, pooling=pooling)["vectors"])
    gathered = workers.concatenate(torch.cat(own).float())
    places = np.concatenate([of_ranks[rank] for rank in range(workers.size) for of_ranks in shares])
    vectors = torch.empty_like(gathered)
    vectors[torch.from_numpy(places).to(gathered.device)] = gathered
    return vectors


def _shares(lengths: NDArray[np.integer], ranks: int, max_tokens: int) -> Iterator[list[NDArray[np.integer]]]:
    """The sentences of each forward pass, by rank: those of like length together, perhaps none for some ranks."""
    order = np.argsort(lengths, kind="stable")[::-1]
    begin = 0
    while begin < len(order):
        rows = max(1, max_tokens // int(lengths[order[begin]]))
        together = order[begin : begin + rows * ranks]
        yield [together[rank::ranks] for rank in range(ranks)]
        begin += rows * ranks


def _rows(sentences: Sequence[Ids], languages: NDArray[np.integer], width: int) -> RankBatch:
    """A row for each sentence, as the model takes it; perhaps no rows."""
    shape = len(sentences), int(width)
    rows = {name: np.zeros(shape, np.int32) for name in ("input_ids", "position_ids", "segment_ids", "example_ids")}
    for row, ids in enumerate(sentences):
        rows["input_ids"][row, : len(ids)] = ids
        rows["position_ids"][row, : len(ids)] = np.arange(len(ids))
        rows["example_ids"][row, : len(ids)] = 1
    rows["language_ids"] = np.repeat(languages[:, None], shape[1], axis=1).astype(np.int32)
    return rows | {"labels": np.full(shape, NOT_PREDICTED, np.int32)}


def _numbers(sentences: Sequence[Ids]) -> NDArray[np.int64]:
    """A number for each distinct sentence, [N]."""
    return np.unique([ids.tobytes() for ids in sentences], return_inverse=True)[1]
