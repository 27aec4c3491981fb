"""Sentence vectors as a user of an encoder's folder gets them: by its own prompt, pooling and further modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.models.hub import encoder_folder
from xalign_ray.models.sentence_files import KEPT, SentenceFiles, SentenceRule, read_sentence_files
from xalign_ray.models.weight_files import CONFIG, read_config
from xalign_ray.work.artifacts import MANIFEST, read_json

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder

Vectors = NDArray[np.float32]
_NO_LANGUAGE = "{} has language embeddings, and nothing says the language of a text. Name another encoder."
Module = Callable[[dict[str, Any]], Mapping[str, Any]]  # of Sentence Transformers: from features to features
# Of hidden states [B, L, D] and a mask [B, L] of real tokens, special ones included; other kinds are left to Sentence
# Transformers, whose import takes three seconds of CPU.
POOLINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "mean": lambda states, mask: (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1)[:, None],
    "cls": lambda states, _: states[:, 0],
}


def vector_files(folder: Path) -> list[Path]:
    """The files that the vectors of a folder depend on."""
    below = [folder / path for _, path in read_sentence_files(str(folder)).modules if path]
    ends = ("json", "safetensors", "bin", "txt", "model")
    files = {path for parent in (folder, *below) for end in ends for path in parent.glob(f"*.{end}")}
    return sorted(path for path in files if path.name != MANIFEST)


def vector_width(folder: Path) -> int:
    """Numbers of a vector, by the folder's config files alone.

    Raises:
        DataError: a file is missing or damaged, a module is unknown, or the encoder has language embeddings.
    """
    files = read_sentence_files(str(folder))
    values = read_config(str(folder))
    if values.get("xalign_languages"):
        raise DataError(_NO_LANGUAGE.format(folder))
    if unknown := [kind for kind in files.kinds if kind not in (*KEPT, "Dense", "LayerNorm")]:
        raise DataError(f"{folder} makes its vectors by a module {unknown[0]}, whose width is unknown here.")
    dense = [path for kind, (_, path) in zip(files.kinds, files.modules, strict=True) if kind == "Dense"]
    if dense:
        config = read_json(folder / dense[-1] / CONFIG, "Copy or download it again.", "out_features")
        return int(config["out_features"])
    return int(values["hidden_size"]) * max(1, len(files.poolings))


class SentenceVectors:
    """An opened encoder that makes sentence vectors, fp32.

    Attributes:
        encoder: opened.
        rule: pooling and prompt.
    """

    def __init__(
        self,
        name: str | Path,
        device: str = "auto",
        prompt: str | None = None,
        rule: SentenceRule | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        """Opens a folder or hub id.

        Args:
            name: folder or hub id.
            device: as `pick_device` takes it.
            prompt: put before each sentence; None is the prompt of the encoder's files.
            rule: pooling and prompt in place of the encoder's own.
            encoder: the same, already opened.

        Raises:
            DataError: it cannot be opened, or has a module that Sentence Transformers does not bring.
        """
        from xalign_ray.models.inference import Encoder  # torch

        files = read_sentence_files(str(name))
        self.rule = rule or files.rule
        if prompt is not None:
            self.rule = replace(self.rule, prompt=prompt, source=f"the prompt by --prompt; {self.rule.source}")
        self.encoder = encoder or Encoder.open(name, device)
        self._modules = load_modules(files, rule, self.encoder.model.device)
        inputs = self.encoder.inputs
        longest = min(inputs.max_length, files.max_length or inputs.max_length)
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
            poolings: "mean", "cls".
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
        spoken = [languages or ""] * len(texts) if languages is None or isinstance(languages, str) else languages
        pieces = inputs.piece_texts([self.rule.prompt + text for text in texts])
        features = [inputs.single(ids[: self._room], code) for ids, code in zip(pieces, spoken, strict=True)]
        (prompt,) = inputs.piece_texts([self.rule.prompt]) if self.rule.prompt else ([],)
        parts: list[tuple[list[int], Vectors, dict[str, Vectors]]] = []
        for places, output, mask in self.encoder.run(features, output_hidden_states=bool(poolings)):
            module_inputs = {"attention_mask": mask, "prompt_length": len(inputs.prefix) + len(prompt)}
            made: Any = module_inputs | {"token_embeddings": output.last_hidden_state}
            with torch.inference_mode():
                for module in self._modules:
                    made = module(made)
                layers = {
                    kind: np.stack([self._pooled(kind, module_inputs, states) for states in output.hidden_states])
                    for kind in poolings
                }
            parts.append((places, made["sentence_embedding"].float().cpu().numpy(), layers))
        order = np.argsort([index for places, _, _ in parts for index in places], kind="stable")
        vectors = np.concatenate([part_vectors for _, part_vectors, _ in parts] or [np.zeros((0, 0), np.float32)])[
            order
        ]
        self.encoder.check_finite(vectors)
        of_layers = {kind: np.concatenate([ways[kind] for *_, ways in parts], axis=1)[:, order] for kind in poolings}
        return vectors, of_layers

    def _pooled(self, kind: str, given: Mapping[str, Any], states: Any) -> Vectors:
        if kind != self.rule.pooling:
            return POOLINGS[kind](states, given["attention_mask"]).float().cpu().numpy()
        return self._modules[0]({**given, "token_embeddings": states})["sentence_embedding"].float().cpu().numpy()


def load_modules(files: SentenceFiles, rule: SentenceRule | None, device: Any) -> list[Module]:
    """The pooling of an encoder, and the modules that Sentence Transformers puts behind it.

    Args:
        rule: pools in place of the encoder's own module.

    Raises:
        DataError: a module is of code that comes with the encoder, or its files are damaged.
    """
    pooling = (rule or files.rule).pooling
    is_ours = (pooling in POOLINGS and (rule is not None or not files.skips_prompt)) or not files.poolings
    modules: list[Module] = [_pool_by(pooling)] if is_ours else []
    for kind, (name, below) in zip(files.kinds, files.modules, strict=True):
        if kind == "Transformer" or (is_ours and kind == "Pooling"):
            continue
        if not name.startswith("sentence_transformers."):
            raise DataError(f"{files.name} makes its vectors by a module {kind}, whose code is not run here.")
        from sentence_transformers.util import import_from_string

        from xalign_ray.models.open_folder import as_one_sentence

        with as_one_sentence(f"{files.name}: its module {kind} cannot be opened"):
            folder = str(encoder_folder(files.name))
            module = import_from_string(name).load(folder, subfolder=below, local_files_only=True)
        modules.append(module.to(device).eval())
    return modules


def _pool_by(kind: str) -> Module:
    return lambda given: {
        **given, "sentence_embedding": POOLINGS[kind](given["token_embeddings"], given["attention_mask"])
    }  # fmt: skip
