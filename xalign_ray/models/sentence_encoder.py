"""Sentence vectors of a Hugging Face or Sentence Transformers folder, as that package's `encode` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.models.hub import hub_file, in_cache, snapshot
from xalign_ray.models.sentence_modules import (
    CUT,
    KEPT,
    MODULES,
    list_modules,
    own_max_length,
    own_pooling,
    sentence_rule,
)
from xalign_ray.models.weight_files import CONFIG, SAFETENSORS, read_config
from xalign_ray.vocabulary.tokenizer import encode_text, frame_of
from xalign_ray.work.artifacts import MANIFEST, read_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DENSE = "Dense"
BATCH_SIZE = 64
_ACTIVATIONS = ("Tanh", "Identity", "GELU", "ReLU", "Sigmoid")  # of torch.nn
_AGAIN = "Copy or download it again."
Vectors = NDArray[np.float32]


def folder_of(name: str) -> Path:
    """The folder of an encoder's files; a hub model is fetched first.

    Raises:
        DataError: there is no such folder, or the hub cannot be reached.
    """
    folder = in_cache(name)
    return Path(folder if Path(folder).is_dir() else snapshot(name, "main"))


def vector_files(folder: Path) -> list[Path]:
    """The files that the vectors of a folder depend on."""
    below = [folder / path for _, path in _modules(folder) if path]
    files = [path for place in (folder, *below) for end in ("json", "safetensors", "bin", "txt", "model")
             for path in place.glob(f"*.{end}")]  # fmt: skip
    return sorted({path for path in files if path.name != MANIFEST})


def vector_width(folder: Path) -> int:
    """Numbers of a vector, by the folder's config files alone.

    Raises:
        DataError: a file is missing or damaged, or vectors are made in a way that is unknown here.
    """
    modules = check_known(folder)
    dense = [path for kind, path in modules if kind == DENSE]
    if dense:
        return int(read_json(folder / dense[-1] / CONFIG, _AGAIN, "out_features")["out_features"])
    return int(read_config(str(folder))["hidden_size"])


def check_known(folder: Path) -> list[tuple[str, str]]:
    """The modules of a folder; none of a plain Hugging Face folder.

    Raises:
        DataError: one is unknown here, or the encoder has language embeddings.
    """
    modules = _modules(folder)
    if unknown := [kind for kind, _ in modules if kind not in (*KEPT, DENSE)]:
        raise DataError(f"{folder} makes its vectors by a module {unknown[0]}, which is unknown here.")
    if any(path for kind, path in modules if kind == "Transformer"):
        raise DataError(f"{folder} keeps its encoder in a folder below; save it again with a newer version.")
    if modules and own_pooling(str(folder)) is None:
        raise DataError(f"{folder}: its pooling is neither mean nor cls, and unknown here.")
    if read_config(str(folder)).get("xalign_languages"):
        raise DataError(
            f"{folder} has language embeddings, and nothing says the language of a text. Name another encoder."
        )
    return modules


def _modules(folder: Path) -> list[tuple[str, str]]:
    return list_modules(folder / MODULES) if (folder / MODULES).is_file() else []


class SentenceEncoder:
    """An opened encoder, fp32, on the GPU where there is one.

    Without Sentence Transformers files a vector is the mean of the last layer's tokens, without a prompt.

    Attributes:
        device: "cuda" or "cpu".
    """

    def __init__(self, name: str) -> None:
        """Opens a folder or hub id.

        Raises:
            DataError: it cannot be opened, or its vectors are made in a way that is unknown here.
        """
        import torch
        from transformers import AutoModel

        from xalign_ray.models.open_folder import open_model

        folder = folder_of(name)
        check_known(folder)
        model, self._tokenizer = open_model(folder, AutoModel, new_head=False)
        if not self._tokenizer.is_fast:
            raise DataError(f"{name} has a slow tokenizer; save it with a tokenizer.json first.")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = model.to(self.device).eval()
        self._rule = sentence_rule(str(folder))
        positions = getattr(model.config, "max_position_embeddings", CUT)
        lengths = (CUT, positions, self._tokenizer.model_max_length, own_max_length(str(folder)))
        self._longest = min(int(length) for length in lengths if length)
        self._after = steps_behind_pooling(str(folder), self.device)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A vector for each text, [N, D]; long ones lose their end. Texts of like length go together."""
        import torch

        order = np.argsort([-len(text) for text in texts], kind="stable")
        backend = self._tokenizer.backend_tokenizer
        begins, ends = frame_of(backend)
        room = self._longest - len(begins) - len(ends)
        found: list[Vectors] = []
        for begin in range(0, len(order), BATCH_SIZE):
            batch = [f"{self._rule.prompt}{texts[place]}" for place in order[begin : begin + BATCH_SIZE]]
            ids = [[*begins, *ids[:room], *ends] for ids in encode_text(backend, batch)[0]]
            given = self._tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                states = self._model(**given).last_hidden_state
                vectors = self._pooled(states, given["attention_mask"])
                for step in self._after:
                    vectors = step(vectors)
            found.append(vectors.float().cpu().numpy())
        vectors = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
        return vectors[np.argsort(order, kind="stable")]

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        if self._rule.pooling == "cls":
            return states[:, 0]
        return (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1)[:, None]


def steps_behind_pooling(name: str, device: str | torch.device) -> list[Callable[[Tensor], Tensor]]:
    """The modules of a folder or hub model behind the pooling, in order: functions of vectors `[N, D]`.

    Raises:
        DataError: a module is unknown here, or its files are damaged.
    """
    path = hub_file(name, MODULES)
    listed = list_modules(path) if path else []
    if unknown := [kind for kind, _ in listed if kind not in (*KEPT, DENSE)]:
        raise DataError(f"{name} makes its vectors by a module {unknown[0]}, which is unknown here.")
    return [_step(kind, name, below, device) for kind, below in listed if kind in (DENSE, "Normalize")]


def _step(kind: str, name: str, below: str, device: str | torch.device) -> Callable[[Tensor], Tensor]:
    """The function of a module behind the pooling."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file

    if kind == "Normalize":
        return lambda vectors: F.normalize(vectors, dim=1)
    folder = f"{name}/{below}"
    path, weights_path = (hub_file(name, f"{below}/{file}") for file in (CONFIG, SAFETENSORS))
    if path is None:
        raise DataError(f"{folder} holds no {CONFIG} of its Dense module. {_AGAIN}")
    config = read_json(path, _AGAIN, "in_features", "out_features")
    activation = str(config.get("activation_function") or "torch.nn.Identity").rpartition(".")[2]
    if activation not in _ACTIVATIONS or config.get("use_residual"):
        raise DataError(f"{folder}/{CONFIG}: a Dense module with {activation} is unknown here.")
    if weights_path is None:
        raise DataError(f"{folder} holds no {SAFETENSORS} of its Dense module. Save it as safetensors.")
    weights = load_file(weights_path)
    weight, bias = (weights[key].to(device) if key in weights else None for key in ("linear.weight", "linear.bias"))
    if weight is None:
        raise DataError(f"{folder} holds no linear.weight, which its {CONFIG} asks for. {_AGAIN}")
    after = getattr(torch.nn, activation)()
    return lambda vectors: after(F.linear(vectors, weight, bias))
