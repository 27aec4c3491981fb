"""Tasks and benchmarks of the package mteb: main scores in each language, run by mteb itself."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.language_codes import check_language, name_of_pair
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.hub import fetch_weights
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.tasks.scores import Score, average_languages, origin_of
from xalign_ray.tasks.task import Metric, Task
from xalign_ray.tasks.task_files import plain_language, without_usual_script
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PREFIX = "mteb:"
_TABLES = {".parquet", ".arrow", ".csv", ".tsv", ".json", ".jsonl", ".txt", ".gz", ".zst", ".xz", ".bz2", ".zip"}
_SCRIPTS = {"Hira": "Jpan", "Hang": "Kore"}  # mteb's names of a part for the whole that is usual
BITEXT, BITEXT_OF = "bitext", "MTEB(Multilingual, v2)"  # the tasks of a benchmark that mine translations
_GIVEN = "given"  # name of the prompt of the command line


class MtebTask(Task):
    """The main score of a task of mteb in each language, and their mean; mteb reads the data and runs the encoder.

    Sentence Transformers opens the encoder, with the prompts and modules of its folder; a plain folder is pooled by the
    mean. Data are mteb's data set in the cache of Hugging Face, or a copy of it in the given folder.

    The name may be that of a benchmark, or `bitext` (the 13 tasks of MTEB(Multilingual, v2) that mine translations):
    then each of its tasks is scored under its own name, those that cannot run are named, and the given folder holds a
    folder for each task.
    """

    needs_data = False
    takes_prompt = True

    def __init__(self, name: str) -> None:
        """Opens nothing: the package is not asked before a score is.

        Args:
            name: with the prefix, such as mteb:STS17 or mteb:bitext.
        """
        self.name = name  # type: ignore[misc]
        title = name.removeprefix(PREFIX)
        meaning = f"main score of mteb's task {title}"
        self.metrics = (Metric(name, f"{title} (mteb)", meaning),)  # type: ignore[misc]

    def evaluate(
        self,
        encoder: str,
        data: Path | None,
        languages: Sequence[str] | None = None,
        device: str = "auto",
        prompt: str | None = None,
    ) -> list[Score]:
        """See `Task.evaluate`; `prompt` is put before each text for which mteb names no other.

        Raises:
            ConfigError: the package is missing, or has no such task.
        """
        try:
            import mteb
        except ImportError:
            raise ConfigError("Tasks of mteb need its package: pip install 'xalign-ray[mteb]'.") from None
        tasks = _find_tasks(mteb, self.name)
        if len(tasks) == 1:
            return self._score(mteb, tasks[0], encoder, data, languages, device, prompt)
        scores, reasons = list[Score](), list[str]()
        for task in tasks:
            name = task.metadata.name
            folder = data / name if data else None
            try:
                if folder and not folder.is_dir():
                    raise DataError(f"{data} has no folder of this name")
                scores += MtebTask(PREFIX + name)._score(mteb, task, encoder, folder, languages, device, prompt)
            except Exception as error:
                reasons.append(f"{name} ({(str(error).strip().splitlines() or [type(error).__name__])[0]})")
        if reasons:
            say(f"{len(reasons)} of {len(tasks)} tasks of {self.name} could not run: {'; '.join(reasons)}")
        if not scores:
            raise DataError(f"None of the {len(tasks)} tasks of {self.name} could run; see the line above.")
        return scores

    def _score(
        self,
        mteb: Any,
        task: Any,
        encoder: str,
        data: Path | None,
        languages: Sequence[str] | None,
        device: str,
        prompt: str | None,
    ) -> list[Score]:
        """The scores of one task."""
        if data is not None and not any(path.suffix in _TABLES for path in data.rglob("*")):
            raise DataError(f"{data} holds no table, so it is not a copy of the data of {self.name}.")
        self._check(task, languages)
        if data is not None:
            of_folder = {**task.metadata.dataset, "path": str(data.absolute())}
            task.metadata = task.metadata.model_copy(update={"dataset": of_folder})
        self._load(task, data, languages)
        opened = open_encoder(encoder)
        model = _open(opened, device, prompt)
        say(f"mteb {mteb.__version__} runs {task.metadata.name}: {len(task.hf_subsets)} parts.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
            except (KeyError, TypeError, ValueError) as error:  # columns that the task does not know
                if data is None:
                    raise
                raise self._unreadable(error, f"{data} is not a copy of it") from None
        (result,) = results.task_results
        origin, revision = origin_of(opened.config, encoder), task.metadata.dataset["revision"]
        names = names_of_parts(task.metadata.hf_subsets_to_langscripts)
        scores = [
            Score(
                **origin,
                task=self.name,
                split=split,
                language=names[row["hf_subset"]],
                metric=self.name,
                value=float(row["main_score"]),
                chance=None,
                n=_count(task.dataset, row["hf_subset"], split),
                layer="last",
                pooling=None,
                test_set=revision if data is None else hash_value([dict(task.metadata.dataset), row["hf_subset"]]),
            )
            for split, rows in result.scores.items()
            for row in rows
        ]
        return scores + average_languages(scores)

    def _check(self, task: Any, languages: Sequence[str] | None) -> None:
        """Chooses the parts in the languages; ConfigError if there are none, or if it is not of text alone."""
        if languages:
            parts = task.metadata.hf_subsets_to_langscripts
            wanted = {without_usual_script(check_language(code)) for code in languages}
            there = {code for part in task.hf_subsets for code in map(_code, parts[part])}
            if lacking := sorted(wanted - there):
                raise ConfigError(f"--languages: {task.metadata.name} has nothing in {', '.join(lacking)}.")
            task.hf_subsets = [part for part in task.hf_subsets if wanted & {*map(_code, parts[part])}]
        if "text" not in task.metadata.modalities or len(task.metadata.modalities) > 1:
            raise ConfigError(f"--task {self.name}: it is not of text alone ({', '.join(task.metadata.modalities)}).")

    def _load(self, task: Any, data: Path | None, languages: Sequence[str] | None) -> None:
        """Reads the data; of a folder that holds some languages, those alone."""
        path = task.metadata.dataset["path"]
        try:
            task.load_data()
        except Exception as error:
            # What datasets and huggingface_hub raise has no common class: a missing file, no network, a bad table.
            hint = (
                f"{data} is not a copy of it"
                if data
                else f"it is not in the cache of Hugging Face. Where there is a network: hf download {path} "
                "--repo-type dataset --local-dir DIR, then --data DIR"
            )
            raise self._unreadable(error, hint) from None
        there = [name for name in task.hf_subsets if name in task.dataset] if isinstance(task.dataset, Mapping) else []
        if there and len(there) < len(task.hf_subsets) and (data or languages):
            say(f"{path} holds {len(there)} of {len(task.hf_subsets)} parts of {task.metadata.name}; these are scored.")
            task.hf_subsets = there

    def _unreadable(self, error: Exception, hint: str) -> DataError:
        first = (str(error).strip().splitlines() or [""])[0]
        return DataError(f"The data of {self.name} cannot be read ({type(error).__name__}: {first}); {hint}.")


def _find_tasks(mteb: Any, name: str) -> list[Any]:
    """The task of a name, or the tasks of a benchmark, with its choice of their parts.

    Raises:
        ConfigError: mteb has neither.
    """
    title = name.removeprefix(PREFIX)
    if title == BITEXT:
        return [task for task in mteb.get_benchmark(BITEXT_OF).tasks if task.metadata.type == "BitextMining"]
    try:
        return [mteb.get_task(title)]
    except KeyError as error:
        try:
            return [*mteb.get_benchmark(title).tasks]
        except KeyError:
            raise ConfigError(f"--task {name}: mteb has no such task or benchmark. {error.args[0]}") from None


def _open(opened: Opened, device: str, prompt: str | None) -> SentenceTransformer:
    """The encoder as Sentence Transformers opens it."""
    from sentence_transformers import SentenceTransformer

    from xalign_ray.models.inference import pick_device

    if opened.config.get("xalign_languages"):
        raise DataError(f"{opened.name} has language embeddings, and mteb's texts come without a language.")
    model = SentenceTransformer(
        str(fetch_weights(opened.name)), device=str(pick_device(device)), trust_remote_code=False
    )
    if prompt is not None:
        model.prompts = {**model.prompts, _GIVEN: prompt}
        model.default_prompt_name = _GIVEN
    return model


def names_of_parts(parts: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The names of the scores of a task's parts, from its languages as mteb names them.

    That is the language, or the pair; mteb's own name of the part where several would have one, such as `ar-ar` and
    `en-ar` of STS17.
    """
    names = {part: _name_of_part(languages, part) for part, languages in parts.items()}
    counts = Counter(names.values())
    return {part: name if counts[name] == 1 else part for part, name in names.items()}


def _name_of_part(names: Collection[str], subset: str) -> str:
    """Of more than two languages, mteb's own name of the part."""
    codes = list(dict.fromkeys(map(_code, names)))
    if len(codes) > 2:
        return subset
    return name_of_pair(codes[0], codes[1]) if len(codes) > 1 else codes[0]


def _code(name: str) -> str:
    """Our code of a language as mteb names it: deu-Latn is de, jpn-Hira ja."""
    language, _, script = name.partition("-")
    return plain_language(f"{language}_{_SCRIPTS.get(script, script)}") or name


def _count(dataset: Any, subset: str, split: str) -> int:
    """Rows of a part of the data; 0 where mteb keeps it in another form."""
    with suppress(KeyError, TypeError, AttributeError):
        rows = dataset.get(subset, dataset)[split]
        return int(rows.num_rows)
    return 0
