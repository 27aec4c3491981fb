"""Opens any Hugging Face encoder, ours or any other, and gives vectors of sentences and words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, PretrainedConfig
from transformers.utils import logging

from xalign_ray.errors import DataError
from xalign_ray.models.own_tokenizer import check_files, check_ids
from xalign_ray.tasks.scores import Origin
from xalign_ray.tasks.tokenized import Inputs

NEW_PARTS = frozenset(
    {"pooler", "classifier", "qa_outputs"}
)  # what a pretrained folder may lack: unused here, or yet to be tuned
AUTO = "auto"
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda states, mask: (states * mask[:, :, None]).sum(dim=2) / mask.sum(dim=1)[:, None],
    "cls": lambda states, _: states[:, :, 0],
}


@dataclass(frozen=True, slots=True)
class Encoder:
    """An opened encoder in evaluation mode, fp32.

    Attributes:
        inputs: its tokenizer and input conventions.
        model: as `AutoModel` opened it.
        origin: what its `config.json` says about where it comes from.
    """

    inputs: Inputs
    model: Any
    origin: Origin

    @classmethod
    def open(cls, folder: str | Path, device: str = AUTO) -> Encoder:
        """Opens an exported folder, any other local Hugging Face folder, or a hub id.

        Raises:
            DataError: there is no such folder, or it holds no encoder and tokenizer that transformers can open.
        """
        model, tokenizer = open_model(folder, AutoModel)
        model.to(pick_device(device)).eval()
        return cls(Inputs.of_model(tokenizer, model, str(folder)), model, origin_of(model.config, str(folder)))

    def hidden_states(
        self, sentences: Sequence[str], language: str, batch_size: int = 64
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Hidden states of every layer, a batch at a time, in the order of the sentences.

        Yields:
            States `[layers + 1, B, L, D]`, the embedding layer's output first, and the mask `[B, L]` of real tokens,
            special ones included.
        """
        yield from self._forward(self.inputs.piece_sentences(sentences), language, batch_size)

    def pooled(
        self, sentences: Sequence[str], language: str, pooling: str = "mean", batch_size: int = 64
    ) -> NDArray[np.float32]:
        """One vector for a sentence and layer, `[layers + 1, N, D]`; as `pool`, in one way."""
        return self.pool(sentences, language, (pooling,), batch_size)[pooling]

    def pool(
        self, sentences: Sequence[str], language: str, poolings: Sequence[str], batch_size: int = 64
    ) -> dict[str, NDArray[np.float32]]:
        """One vector for a sentence and layer in each of several ways, from one pass over the sentences.

        Args:
            sentences: `N` texts.
            language: of all of them.
            poolings: "mean" over real tokens, special ones included (XTREME's default), or "cls", the first token.
            batch_size: sentences at a time; those of like length go together.

        Returns:
            `[layers + 1, N, D]` by pooling.

        Raises:
            DataError: the model yields values that are not finite.
        """
        rows = self.inputs.piece_sentences(sentences)
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        blocks: dict[str, list[NDArray[np.float32]]] = {pooling: [] for pooling in poolings}
        for states, mask in self._forward([rows[index] for index in order], language, batch_size):
            for pooling in poolings:
                blocks[pooling].append(POOLINGS[pooling](states, mask).float().cpu().numpy())
        found = {}
        for pooling, parts in blocks.items():
            found[pooling] = np.empty((parts[0].shape[0], len(rows), parts[0].shape[2]), dtype=np.float32)
            found[pooling][:, order] = np.concatenate(parts, axis=1)
            self._check_finite(found[pooling])
        return found

    def word_vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Mean of the input-embedding rows of each word's pieces, as they stand in the table: without position,
        LayerNorm or language: the rows that ALIGN-MLM aligns.

        Returns:
            `[N, D]`; the zero vector for a word that has no piece but the unknown one.

        Raises:
            DataError: the table holds values that are not finite.
        """
        table = self.embedding_table()
        unknown = self.inputs.tokenizer.unk_token_id
        pieces = [[piece for piece in ids if piece != unknown] for ids in self.inputs.piece_words(words)]
        vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
        for row, ids in enumerate(pieces):
            if ids:
                vectors[row] = table[ids].mean(axis=0)
        return vectors

    def embedding_table(self) -> NDArray[np.float32]:
        """The input embeddings, `[V, D]`.

        Raises:
            DataError: it holds values that are not finite.
        """
        table = self.model.get_input_embeddings().weight.detach().float().cpu().numpy()
        self._check_finite(table)
        return table

    def language_vector(self, language: str) -> NDArray[np.float32]:
        """What the model adds to every token of a text in this language, `[D]`: the token-type row that holds it.

        The row is segment 0 plus language, folded by the export. Zero for a model without language embeddings.
        """
        row = self.inputs.token_type(language)
        if not self.inputs.languages:
            return np.zeros(self.embedding_table().shape[1], dtype=np.float32)
        table = self.model.base_model.embeddings.token_type_embeddings
        return table.weight[row].detach().float().cpu().numpy()

    @torch.inference_mode()
    def _forward(
        self, rows: Sequence[Sequence[int]], language: str, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        device = next(self.model.parameters()).device
        for start in range(0, len(rows), batch_size):
            part = [self.inputs.single(ids, language) for ids in rows[start : start + batch_size]]
            batch = {key: value.to(device) for key, value in self.inputs.collate(part).items()}
            output = self.model(**batch, output_hidden_states=True)
            yield torch.stack(output.hidden_states), batch["attention_mask"]

    def _check_finite(self, values: NDArray[np.float32]) -> None:
        if not np.isfinite(values).all():
            raise DataError(
                f"{self.inputs.encoder} yields values that are not finite; its training diverged or its weights are "
                "damaged: export an earlier checkpoint."
            )


def pick_device(device: str = AUTO) -> torch.device:
    """The torch device of this name; of "auto" the GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == AUTO else device)


def open_model(folder: str | Path, model_class: Any, **settings: Any) -> tuple[Any, Any]:
    """Model (fp32) and tokenizer of a local folder or hub id.

    Args:
        folder: local Hugging Face folder, or hub id.
        model_class: an Auto class of transformers.
        settings: put into the model's config, such as `num_labels`.

    Raises:
        DataError: there is no such folder, transformers cannot open it, it lacks weights of the encoder (which
            transformers would silently draw at random), or its tokenizer is gone or another's (it would make one up).
    """
    # Registers our class, so that Auto classes open it; here, because it costs whoever imports it two seconds of CPU.
    from xalign_ray.models import language_modernbert  # noqa: F401

    name = str(folder)
    if not Path(name).is_dir() and (Path(name).is_absolute() or name.startswith(".") or name.count("/") > 1):
        raise DataError(f"{name} is not a folder; give an export folder or a hub id such as bert-base-cased.")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(name, trust_remote_code=False, **settings)
        check_files(name, config)
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model, found = model_class.from_pretrained(
                name, config=config, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
            )
    except UnpicklingError:
        raise DataError(
            f"{name} cannot be opened as a Hugging Face encoder: its weights are a pickle of more than tensors, "
            "and could run any code. Save it as safetensors first, if you know who made it."
        ) from None
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{name} cannot be opened as a Hugging Face encoder with its tokenizer: {reason}") from error
    _check_weights(name, found["missing_keys"])
    check_ids(name, tokenizer, model.get_input_embeddings().num_embeddings)
    return model, tokenizer


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keeps transformers from reporting what `open_model` checks by itself, and from drawing progress bars."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _check_weights(name: str, missing: Collection[str]) -> None:
    if lacking := sorted(key for key in missing if not NEW_PARTS & set(key.split("."))):
        raise DataError(
            f"{name} lacks {len(lacking)} weights of its encoder, such as {lacking[0]}; its config.json and its "
            "weights do not belong together: export it again."
        )


def origin_of(config: PretrainedConfig, opened: str) -> Origin:
    """The origin of scores, from the extra keys that our exports and fine-tuned folders carry in `config.json`."""
    recipe, fingerprint = getattr(config, "xalign_recipe", None), getattr(config, "xalign_fingerprint", None)
    tuned_seed = getattr(config, "xalign_tune_seed", None)
    return Origin(
        run=f"{recipe.replace('/', '-')}-{fingerprint[:8]}" if recipe and fingerprint else None,
        encoder=getattr(config, "xalign_encoder", None) or opened,
        objective=getattr(config, "xalign_objective", None),
        seed=getattr(config, "xalign_seed", None) if tuned_seed is None else tuned_seed,
        step=getattr(config, "xalign_step", None),
    )
