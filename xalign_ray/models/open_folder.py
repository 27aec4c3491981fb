"""Opens a Hugging Face model folder for every verb, with one list of refusals."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any, ParamSpec, TypeVar

import torch
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, PretrainedConfig
from transformers.utils import logging

from xalign_ray.errors import DataError
from xalign_ray.models.hub import fetch_weights
from xalign_ray.models.open import Opened
from xalign_ray.models.weight_files import read_weights

OWN_CODE = "it comes with code of its own (auto_map in its config.json), which is not run here: name another encoder"
POOLER = "pooler"  # in the name of a weight: a layer that no loss and no task here reads

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_making = threading.RLock()


def one_at_a_time(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """A function that makes a model of transformers, by one thread at a time.

    transformers marks the whole process while it opens one: what another thread makes then stays without weights.
    Trainings of a study begin and end in threads of one process.
    """

    @functools.wraps(make)
    def alone(*arguments: _Given.args, **options: _Given.kwargs) -> _Made:
        with _making:
            return make(*arguments, **options)

    return alone


@one_at_a_time
def open_model(opened: Opened, model_class: Any, new_head: bool = True, **settings: Any) -> tuple[Any, Any]:
    """Model (fp32) and tokenizer of an encoder, see `open_weights`.

    Of a model that also has a decoder, such as NLLB's or mBART, `AutoModel` is its encoder.

    Args:
        model_class: an Auto class of transformers.
        new_head: whether the head above the encoder may be drawn at random, to be tuned.
        settings: put into the model's config, such as `num_labels`.

    Raises:
        DataError: it cannot be opened, is damaged, or its tokenizer is gone or another's (transformers would make one
            up).
    """
    name = opened.name
    if not opened.commit:  # the weights of a hub model come after its small files
        read_weights(opened.folder)
    with as_one_sentence(f"{name} cannot be opened as a Hugging Face encoder with its tokenizer"):
        config: PretrainedConfig = AutoConfig.from_pretrained(opened.folder, trust_remote_code=False, **settings)
        with quiet_transformers():
            tokenizer = opened.tokenizer
    if model_class is AutoModel and any(name.endswith("EncoderModel") for name in config.architectures or ()):
        model_class = AutoModelForTextEncoding  # of T5's kinds, saved without the decoder that AutoModel asks for
    model, drawn = open_weights(name, model_class, config)
    if drawn and not new_head:
        raise DataError(
            f"{name} has no head of its own ({len(drawn)} weights are not there, such as {drawn[0]}); fine-tune it "
            "first (xalign tune), or name a folder that has one."
        )
    with as_one_sentence(f"{name} is no encoder of text"):
        rows = model.get_input_embeddings().num_embeddings
    last = max([*tokenizer.get_vocab().values(), *tokenizer.all_special_ids, len(tokenizer) - 1])
    if last >= rows:
        raise DataError(
            f"{name}: its tokenizer gives ids up to {last}, but the model has {rows} embeddings; they do not belong "
            "together. Put the model's own tokenizer next to it."
        )
    if model_class is AutoModel and config.is_encoder_decoder:  # whose own outputs are the decoder's
        model = model.get_encoder()
    return model, tokenizer


@one_at_a_time
def open_weights(name: str, model_class: Any, config: Any, **options: Any) -> tuple[Any, list[str]]:
    """The model of a folder or hub id in fp32, each weight of its encoder as the files have it.

    Args:
        model_class: of transformers, Auto or not.
        options: of `from_pretrained`.

    Returns:
        The model, and the names of the weights of its head that the files lack: these were drawn at random.

    Raises:
        DataError: weights are missing, have no place in the model, have another size, or are not finite; the files are
            no weights, cut short, or a pickle that could run code.
    """
    folder = fetch_weights(name)
    read_weights(folder)
    with as_one_sentence(f"{name} cannot be opened as a Hugging Face encoder"), quiet_transformers():
        model, loading = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # judged below; transformers would raise without a name or a size
            **options,
        )
    drawn = [key for key in sorted(loading["missing_keys"]) if not _is_of_encoder(model, key)]
    _check_loaded(name, model, loading, drawn)
    return model, drawn


def _check_loaded(name: str, model: Any, found: dict[str, Any], drawn: list[str]) -> None:
    """Refuses a load from which transformers reports that weights of the encoder were missing or of another shape."""
    missing, unexpected = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    lacking = [key for key in missing if _is_of_encoder(model, key) and POOLER not in key.split(".")]
    if type(model).__name__.endswith("ForMaskedLM"):  # other heads are tuned anew, whatever is there of them
        encoder = {
            id(weight) for weight in model.base_model.parameters()
        }  # with the table that XLM-R names after its head
        head = {key for key, weight in model.named_parameters() if id(weight) not in encoder}
        lacking += drawn if drawn and not head <= set(drawn) else []
    if lacking:
        why = _why_lacking(model, lacking[0], unexpected)
        raise DataError(f"{name} lacks {len(lacking)} of its weights, such as {lacking[0]}; {why}.")
    if found["mismatched_keys"]:
        key, there, asked = sorted(found["mismatched_keys"])[0]
        raise DataError(
            f"{name}: {key} is of size {_size(there)}, its config.json asks for {_size(asked)}; they do not belong "
            "together: export it again."
        )
    surplus = [key for key in unexpected if _is_of_encoder(model, key) and POOLER not in key.split(".")]
    if surplus:
        why = OWN_CODE if hasattr(model.config, "auto_map") else "export it again, or merge its adapters first"
        raise DataError(
            f"{name} holds {len(surplus)} weights that its config.json has no place for, such as {surplus[0]}; without "
            f"them it is another encoder: {why}."
        )
    if broken := next((key for key, value in model.named_parameters() if not torch.isfinite(value).all()), None):
        raise DataError(
            f"{name}: {broken} holds values that are not finite; its training diverged or its weights are damaged: "
            "export an earlier checkpoint."
        )


def _why_lacking(model: Any, lacking: str, unexpected: Sequence[str]) -> str:
    """What may have become of a weight that is not there, by the names of those that are too much."""
    if hasattr(model.config, "auto_map"):
        return OWN_CODE
    tail = lacking.removeprefix(f"{model.base_model_prefix}.")
    if held := next((key for key in unexpected if "." not in key or key.endswith(f".{tail}")), None):
        return f"its file of weights holds {held} instead: save the model alone, with save_pretrained"
    return "its config.json and its weights do not belong together: export it again"


def _is_of_encoder(model: Any, key: str) -> bool:
    """Whether a weight's name, in the model or in its files, is of the encoder below the head."""
    prefix = f"{model.base_model_prefix}."
    if key.startswith(prefix):
        return True
    parts = {name for name, _ in model.base_model.named_children()} | {POOLER}
    of_head = {name for name, _ in model.named_children()} if model.base_model is not model else set()
    return key.split(".")[0] in parts - of_head


def _size(size: Collection[int]) -> str:
    return " x ".join(map(str, size))


@contextmanager
def as_one_sentence(what: str) -> Iterator[None]:
    """Raises a loader's error on a foreign file as a DataError: these errors have no common class."""
    try:
        yield
    except DataError:
        raise
    except UnpicklingError:
        raise DataError(
            f"{what}: its weights are a pickle of more than tensors, and could run any code. Save it as safetensors "
            "first, if you know who made it."
        ) from None
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise DataError(f"{what}: {OWN_CODE}.") from None
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"{what}: {lines[0]}") from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silences the reports of transformers that are checked here, and its progress bars."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
