"""Sentence vectors as a user of an encoder's folder gets them: by its own prompt, pooling and further modules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.models.open import Opened
from xalign_ray.models.sentence_files import FROZEN, KEPT, SentenceRule
from xalign_ray.models.weight_files import CONFIG
from xalign_ray.work.artifacts import MANIFEST, read_json

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder

Vectors = NDArray[np.float32]
_NO_LANGUAGE = "{} has language embeddings, and nothing says the language of a text. Name another encoder."


def vector_files(opened: Opened) -> list[Path]:
    """The files that the vectors of an encoder depend on."""
    below = [opened.folder / path for _, path in opened.sentences.modules if path]
    ends = ("json", "safetensors", "bin", "txt", "model")
    files = {path for parent in (opened.folder, *below) for end in ends for path in parent.glob(f"*.{end}")}
    return sorted(path for path in files if path.name != MANIFEST)


def vector_width(opened: Opened) -> int:
    """Numbers of a vector, by the config files alone.

    Raises:
        DataError: a file is missing or damaged, a module is unknown, or the encoder has language embeddings.
    """
    files = opened.sentences
    if opened.config.get("xalign_languages"):
        raise DataError(_NO_LANGUAGE.format(opened.name))
    if unknown := [kind for kind in files.kinds if kind not in (*KEPT, *FROZEN)]:
        raise DataError(f"{opened.name} makes its vectors by a module {unknown[0]}, whose width is unknown here.")
    dense = [path for kind, (_, path) in zip(files.kinds, files.modules, strict=True) if kind == "Dense"]
    if dense:
        config = read_json(opened.folder / dense[-1] / CONFIG, "Copy or download it again.", "out_features")
        return int(config["out_features"])
    return int(opened.config["hidden_size"]) * max(1, len(files.poolings))


class SentenceVectors:
    """An encoder that makes sentence vectors, fp32: hidden states of `Encoder`, then Sentence Transformers' modules.

    Sentence Transformers pads a batch of 32; here a batch has a bounded number of pieces, and a language may be given.

    Attributes:
        encoder: opened.
        rule: pooling and prompt.
    """

    def __init__(
        self,
        opened: Opened,
        device: str = "auto",
        prompt: str | None = None,
        rule: SentenceRule | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        """Opens its weights and modules.

        Args:
            device: as `pick_device` takes it.
            prompt: put before each sentence; None is the prompt of the encoder's files.
            rule: pooling and prompt in place of the encoder's own.
            encoder: its weights, where they are open already.

        Raises:
            DataError: it cannot be opened, or has a module that Sentence Transformers does not bring.
        """
        from xalign_ray.models.inference import Encoder  # torch

        files = opened.sentences
        self.rule = rule or files.rule
        if prompt is not None:
            self.rule = replace(self.rule, prompt=prompt, source=f"the prompt by --prompt; {self.rule.source}")
        self.encoder = encoder or Encoder.open(opened, device)
        self._pooling = _pooling(self.rule.pooling, not files.skips_prompt)
        self._modules = _load_modules(opened, self._pooling, self.encoder.model.device)
        inputs = self.encoder.inputs
        longest = min(inputs.longest, files.max_length or inputs.longest) if files.modules else inputs.max_length
        self._room = longest - len(inputs.prefix) - len(inputs.suffix)

    @property
    def device(self) -> str:
        """As torch names it."""
        return str(self.encoder.model.device)

    def encode(self, texts: Sequence[str], languages: str | Sequence[str] | None = None) -> Vectors:
        """A vector of each text, `[N, D]`; of long texts the end is cut off.

        Args:
            languages: one of all, or one a text; only an encoder with language embeddings needs them.

        Raises:
            DataError: the encoder lacks a language, or yields values that are not finite.
        """
        return self._encode(texts, languages, ())[0]

    def layers(self, texts: Sequence[str], language: str, *poolings: str) -> tuple[Vectors, dict[str, Vectors]]:
        """A vector of each text, `[1, N, D]`, and of each layer in several ways, `[layers + 1, N, D]`.

        The embeddings are layer 0. The rule's own pooling is among the ways.

        Args:
            poolings: of Sentence Transformers, such as "mean".
        """
        vectors, layers = self._encode(texts, language, dict.fromkeys([*poolings, self.rule.pooling]))
        return vectors[None], layers

    def _encode(
        self, texts: Sequence[str], languages: str | Sequence[str] | None, poolings: Collection[str]
    ) -> tuple[Vectors, dict[str, Vectors]]:
        import torch

        inputs = self.encoder.inputs
        if languages is None and inputs.languages:
            raise DataError(_NO_LANGUAGE.format(inputs.encoder))
        codes = [languages or ""] * len(texts) if languages is None or isinstance(languages, str) else languages
        pieces = inputs.piece_texts([self.rule.prompt + text for text in texts])
        features = [inputs.single(ids[: self._room], code) for ids, code in zip(pieces, codes, strict=True)]
        (prompt,) = inputs.piece_texts([self.rule.prompt]) if self.rule.prompt else ([],)
        ways = {kind: self._pooling if kind == self.rule.pooling else _pooling(kind) for kind in poolings}
        vectors: dict[int, Vectors] = {}
        layers: dict[str, dict[int, Vectors]] = {kind: {} for kind in ways}
        for places, output, mask in self.encoder.run(features, output_hidden_states=bool(ways)):
            given = {"attention_mask": mask, "prompt_length": len(inputs.prefix) + len(prompt)}
            made: Any = {**given, "token_embeddings": output.last_hidden_state}
            with torch.inference_mode():
                for module in self._modules:
                    made = module(made)
                for kind, pool in ways.items():
                    pooled = [pool({**given, "token_embeddings": states}) for states in output.hidden_states]
                    layers[kind] |= _by_place(places, [each["sentence_embedding"] for each in pooled])
            vectors |= _by_place(places, [made["sentence_embedding"]])
        in_order = range(len(texts))
        joined = np.concatenate([vectors[at] for at in in_order] or [np.zeros((0, 0), np.float32)])
        self.encoder.check_finite(joined)
        return joined, {kind: np.stack([found[at] for at in in_order], axis=1) for kind, found in layers.items()}


def _by_place(places: Sequence[int], layers: Sequence[Any]) -> zip[tuple[int, Vectors]]:
    """The vectors of each text of a batch, `[layers, D]`, from those of each layer, `[B, D]`."""
    return zip(places, np.stack([vectors.float().cpu().numpy() for vectors in layers], axis=1), strict=True)


def _pooling(kinds: str, include_prompt: bool = True) -> Any:
    """A pooling of Sentence Transformers; several kinds with " + " between are concatenated."""
    from sentence_transformers.sentence_transformer.modules import Pooling  # three seconds of CPU

    modes: Any = kinds.split(" + ")
    return Pooling(1, modes, include_prompt)  # 1: whatever width its states have


def _load_modules(opened: Opened, pooling: Any, device: Any) -> list[Any]:
    """What Sentence Transformers puts behind an encoder, with `pooling` in the place of its own.

    Raises:
        DataError: a module is of code that comes with the encoder, or its files are damaged.
    """
    files = opened.sentences
    modules = [] if "Pooling" in files.kinds else [pooling]
    for kind, (name, below) in zip(files.kinds, files.modules, strict=True):
        if kind == "Pooling":
            modules.append(pooling)
        elif kind != "Transformer":
            modules.append(_load_module(opened, name, below).to(device))
    return modules


def load_frozen(opened: Opened) -> list[Any]:
    """The modules of `SentenceFiles.frozen`, opened; DataError as of `SentenceVectors`."""
    return [_load_module(opened, name, below).requires_grad_(False) for name, below in opened.sentences.frozen]


def _load_module(opened: Opened, name: str, below: str) -> Any:
    from sentence_transformers.util import import_from_string

    from xalign_ray.models.open_folder import as_one_sentence

    if not name.startswith("sentence_transformers."):
        raise DataError(f"{opened.name} makes its vectors by a module {name}, whose code is not run here.")
    with as_one_sentence(f"{opened.name}: its module {name.rpartition('.')[2]} cannot be opened"):
        return import_from_string(name).load(str(opened.folder), subfolder=below, local_files_only=True).eval()
