"""Studies as they are declared: what YAML may say, and which cells it means."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ray.small import copy_demo
from xalign_ray.config.load import list_studies
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.studies.cells import EVALUATION, Cell
from xalign_ray.studies.declared import Resources, Search, Settings, StudyConfig, load_study
from xalign_ray.studies.plan import Plan, check_task_files, plan_study
from xalign_ray.studies.study import show_plan
from xalign_ray.tasks.registry import TASKS

ENCODERS = {"a": "hub/a", "b": "hub/b"}
POS = {"task": "pos", "data": "pos"}


SENTENCE = "1\tcats\t_\tNOUN" + "\t_" * 6 + "\n"


def write(folder: Path, **changes: Any) -> Path:
    """A study of two encoders on tagging, with changes at the top level, and the files that it needs."""
    copy_demo(folder / "runs" / "demo")
    (folder / "pos").mkdir(exist_ok=True)
    for split in ("train", "dev"):
        (folder / "pos" / f"en.{split}.conllu").write_text(SENTENCE)
    tree = {
        "root": str(folder),
        "encoders": [{"model": path, "label": label} for label, path in ENCODERS.items()],
        "finetunings": [POS],
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree | changes))
    return folder / "mine.yaml"


def planned(folder: Path, **changes: Any) -> Plan:
    return plan_study(load_study(str(write(folder, **changes))), folder / "runs", str)


def cells(plan: Plan) -> list[Cell]:
    return [cell for cell in plan.cells if not cell.recipe]


def tuned(folder: Path, **changes: Any) -> list[Cell]:
    return planned(folder, **changes).finetunings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"serch": {}}, "unknown key 'serch'. Did you mean 'search'?"),
        ({"search": {"num_sample": 2}}, "unknown key 'search.num_sample'. Did you mean 'search.num_samples'?"),
        (
            {"finetunings": [POS | {"settings": {"learning_rate": []}}]},
            "'finetunings.0.settings.learning_rate' is []; it must have at least 1 entry.",
        ),
        (
            {"finetunings": [POS | {"settings": {"learning_rate": [0]}}]},
            "'finetunings.0.settings.learning_rate.0' is 0; it must be more than 0.",
        ),
        (
            {"finetunings": [POS | {"settings": {"train_batch_size": [16, 32], "per_device_train_batch_size": 12}}]},
            "train_batch_size is 16, no multiple of per_device_train_batch_size, which is 12; give one that is.",
        ),
        (
            {"finetunings": [POS | {"settings": {"lr_scheduler_type": "lineal"}}]},
            "'finetunings.0.settings.lr_scheduler_type.0' is 'lineal'; it must be one of linear, cosine, polynomial, "
            "constant, constant_with_warmup.",
        ),
        (
            {"finetunings": [POS | {"settings": {"num_train_epochs": "two"}}]},
            "'finetunings.0.settings.num_train_epochs.0' is 'two'; it must be a whole number",
        ),
        (
            {"finetunings": [POS | {"task": "poss"}]},
            "'finetunings.0': task 'poss' is not known here. Did you mean 'pos'?",
        ),
        ({"finetunings": [POS, POS]}, "finetunings has pos (en) twice; remove one, or give it another name."),
        (
            {"finetunings": [POS | {"settings": {"num_train_epoch": 2}}]},
            "unknown key 'finetunings.0.settings.num_train_epoch'. Did you mean "
            "'finetunings.0.settings.num_train_epochs'?",
        ),
        (
            {"finetunings": [POS | {"training": [{"kind": "word_switch"}]}]},
            "'finetunings.0.training.0': dictionaries is for word_switch, which needs at least one",
        ),
        ({"encoders": [{"label": "a"}]}, "'encoders.0': an encoder is given by one of recipe, command and model."),
        ({"encoders": []}, "'encoders' is []; it must have at least 1 entry."),
        (
            {"encoders": [{"model": "a", "seeds": [1]}]},
            "'encoders.0': seeds are of trainings; a model has none.",
        ),
        (
            {"encoders": [{"model": "a", "step": 0}]},
            "'encoders.0': settings and step are for recipes.",
        ),
        (
            {"encoders": [{"command": "train"}]},
            "'encoders.0': a command writes an encoder into {out}, and this one does not name it.",
        ),
        ({"encoders": [{"command": "train {out} it's"}]}, "'encoders.0': No closing quotation."),
        ({"encoders": [{"command": "train {out} {pairs}"}]}, "encoders have {pairs}, which nothing stands for"),
        (
            {"encoders": [{"recipe": "tiny/mlm"}, {"recipe": "tiny/mlm"}]},
            "encoders has tiny/mlm twice; remove one, or give it another name.",
        ),
        ({"seeds": [1, 1]}, "seeds has 1 twice; remove one, or give it another name."),
        ({"baseline": "c"}, "baseline 'c' is no label of an encoder. Labels are a, b."),
        (
            {"evaluations": [{"task": "pos", "data": "pos"}]},
            "'evaluations.0': task 'pos' is not known here. Known: alignment",
        ),
        ({"resources": {"cpus": 0}}, "'resources.cpus' is 0; it must be more than 0."),
    ],
)
def test_what_a_study_cannot_mean_is_said_with_file_key_and_fix(tmp_path: Path, changes: dict[str, Any], said: str):
    file = write(tmp_path, **changes)
    with pytest.raises(ConfigError) as caught:
        load_study(str(file))
    assert str(caught.value).startswith(f"{file}: {said}")


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no study 'reel', neither a file nor .* Did you mean 'real'\?"):
        load_study("reel")


@pytest.mark.parametrize("name", list_studies())
def test_the_studies_of_the_package_are_valid_and_named_as_their_files(name: str):
    study = load_study(name)
    assert (study.name, study.scale) == (name.replace("/", "-"), name.partition("/")[2])


def test_a_study_of_several_scales_asks_for_one():
    with pytest.raises(ConfigError, match=r"study 'weam' is there at several scales; add --scale with one of paper, "):
        load_study("weam")
    with pytest.raises(ConfigError, match=r"no study 'weam/tinny', .* Did you mean 'weam/tiny'\?"):
        load_study("weam/tinny")


def test_a_setting_is_the_studys_own_or_given_to_every_recipe(tmp_path: Path):
    study = load_study(str(write(tmp_path)), ["seeds=[4]", "resources.cpus=0.5", "train.max_steps=7"])
    assert (study.seeds, study.resources.cpus, study.settings) == ((4,), 0.5, ("train.max_steps=7",))
    assert StudyConfig.model_fields.keys() & RunConfig.model_fields.keys() == {"notes"}


def test_recipes_are_pretrained_seed_by_seed_with_the_settings_of_encoder_and_study(tmp_path: Path):
    encoders = [
        {"recipe": "tiny/mlm", "label": "mlm"},
        {"recipe": "tiny/mlm", "label": "wide", "settings": ["model.hidden_size=64"], "seeds": [5]},
        {"model": "hub/a"},
    ]
    plan = planned(tmp_path, encoders=encoders, seeds=[1, 2], settings=["train.max_steps=7"], mlflow="off")
    told = [(str(one), one.recipe.config.model.hidden_size) for one in plan.pretrainings]
    default = plan.pretrainings[0].recipe.config.model.hidden_size
    assert told == [("mlm (seed 1)", default), ("wide (seed 5)", 64), ("mlm (seed 2)", default)]
    configs = [one.recipe.config for one in plan.pretrainings]
    assert {(one.train.max_steps, one.track.mlflow, one.output) for one in configs} == {
        (7, "off", str(tmp_path / "runs"))
    }
    assert [one.label for one in plan.encoders] == ["mlm", "wide", "hub/a", "mlm"]
    seeds = {(one.encoder, one.seed) for one in plan.finetunings}  # of fine-tuning
    assert seeds == {("mlm", 0), ("wide", 0), ("hub/a", 1), ("hub/a", 2)}  # a draw a seed of each
    assert [one.resources for one in plan.pretrainings] == [Resources(cpus=2.0)] * 3  # a worker's, and the feed's


def test_a_recipe_that_two_continue_is_one_cell_before_them(tmp_path: Path):
    encoders = [{"recipe": "tiny/ppa"}, {"recipe": "tiny/ppa-no-tlm"}]
    plan = planned(tmp_path, encoders=encoders, finetunings=[])
    base, *others = plan.pretrainings
    assert [one.recipe.name for one in plan.pretrainings] == [base.recipe.name, "tiny/ppa", "tiny/ppa-no-tlm"]
    assert [one.needs for one in others] == [base, base]


def test_two_labels_of_one_encoder_are_refused(tmp_path: Path):
    encoders = [{"recipe": "tiny/mlm", "label": "one"}, {"recipe": "tiny/mlm", "label": "two"}]
    with pytest.raises(ConfigError, match=r"encoders: 'one' and 'two' are the same encoder; remove one\."):
        planned(tmp_path, encoders=encoders)


def test_steps_of_a_run_are_encoders_of_one_pretraining(tmp_path: Path):
    encoders = [{"recipe": "tiny/mlm", "label": "mlm"}, *({"recipe": "tiny/mlm", "step": step} for step in (0, 450))]
    kept = ["checkpoint.save_total_limit=2"]
    plan = planned(tmp_path, encoders=encoders, finetunings=[], evaluations=[{"task": "alignment"}], settings=kept)
    assert [str(one) for one in plan.pretrainings] == ["mlm (seed 0)"]
    assert [(one.label, one.step) for one in plan.encoders] == [
        ("mlm", None), ("tiny/mlm step 0", 0), ("tiny/mlm step 450", 450)
    ]  # fmt: skip
    assert len(cells(plan)) == 3


def test_a_step_that_the_run_does_not_keep_is_refused_before_it_is_trained(tmp_path: Path):
    kept = ["checkpoint.save_steps=200", "checkpoint.save_total_limit=2"]
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, encoders=[{"recipe": "tiny/mlm", "step": 600, "settings": kept}], finetunings=[])
    assert str(caught.value) == (
        f"encoders: 'tiny/mlm {' '.join(kept)} step 600' asks for step 600; its run keeps 0, 800, 900. Name one of "
        "these, or change checkpoint.save_steps or checkpoint.save_total_limit."
    )


def test_a_grid_has_every_combination_of_what_is_a_list(tmp_path: Path):
    settings = {"learning_rate": [0.1, 0.2], "num_train_epochs": [1, 2], "warmup_steps": 0.5}
    found = tuned(tmp_path, finetunings=[POS | {"settings": settings, "seeds": [0, 1]}])
    told = [(cell.encoder, cell.seed, cell.settings.learning_rate, cell.settings.num_train_epochs) for cell in found]
    grid = [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    assert told == [(encoder, seed, *setting) for encoder in ENCODERS for seed in (0, 1) for setting in grid]
    assert {cell.settings.warmup_steps for cell in found} == {0.5}
    assert {cell.data for cell in found} == {(str(tmp_path / "pos"),)}
    assert len({cell.name for cell in found}) == len(found)


def test_a_random_search_draws_the_same_for_every_encoder_and_another_seed_draws_otherwise(tmp_path: Path):
    search = {"num_samples": 5}
    settings = {"learning_rate": [1e-5, 2e-5, 5e-5, 1e-4, 1e-3], "num_train_epochs": [1, 2, 3], "train_batch_size": 8}
    found = tuned(tmp_path, search=search, finetunings=[POS | {"settings": settings}])
    drawn = {label: [cell.settings for cell in found if cell.encoder == label] for label in ENCODERS}
    assert drawn["a"] == drawn["b"]
    values = [(setting.learning_rate, setting.num_train_epochs) for setting in drawn["a"]]
    assert len(set(values)) == len(values) > 2
    assert {setting.train_batch_size for setting in drawn["a"]} == {8}
    other = Search(num_samples=5, seed=1).settings_to_try(Settings.model_validate(settings))
    assert [(setting["learning_rate"], setting["num_train_epochs"]) for setting in other] != values


def test_halving_searches_under_the_first_seeds_and_the_others_wait_for_its_choice(tmp_path: Path):
    encoders = [{"recipe": "tiny/mlm", "seeds": [3, 4]}, {"model": "hub/a"}]
    found = tuned(
        tmp_path,
        encoders=encoders,
        search={"num_samples": 2, "asha": {}},
        finetunings=[POS | {"settings": {"learning_rate": [1e-5, 1e-4, 1e-3]}, "seeds": [7, 8]}],
    )
    searched = {(cell.encoder, cell.source.seed, cell.seed) for cell in found if not cell.after_choice}
    assert searched == {("tiny/mlm", 3, 7), ("hub/a", None, 7)}
    assert len(found) == 3 * 2 * 2


def test_kinds_of_training_are_columns_of_their_own_and_english_has_the_plain_name(tmp_path: Path):
    one = POS | {"training": [{"kind": "english"}, {"kind": "translate_train", "languages": ["de"]}]}
    plan = planned(tmp_path, finetunings=[one], baseline="b")
    assert plan.study.labels == ["a", "a translate_train", "b", "b translate_train"]
    assert [cell.label for cell in cells(plan)] == plan.study.labels
    assert len({tuple(cell.search.values()) for cell in plan.finetunings}) == 4


def test_dictionaries_and_resources_of_a_fine_tuning_are_its_own(tmp_path: Path):
    switched = {"kind": "word_switch", "dictionaries": ["en-de.txt"]}
    cell, _ = tuned(
        tmp_path, finetunings=[POS | {"training": [switched], "resources": {"gpus": 0.5}}], resources={"cpus": 2}
    )
    assert cell.training.dictionaries == (str(tmp_path / "en-de.txt"),)
    assert cell.resources == Resources(gpus=0.5)


def test_an_edited_dictionary_makes_another_cell(tmp_path: Path):
    names = []
    for content in ("dog Hund\n", "dog Hund\n", "dog Dogge\n"):
        (tmp_path / "en-de.txt").write_text(content)
        switched = {"kind": "word_switch", "dictionaries": ["en-de.txt"]}
        names.append(tuned(tmp_path, finetunings=[POS | {"training": [switched]}])[0].name)
    assert names[0] == names[1] != names[2]


def test_an_evaluation_needs_data_that_are_there(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"evaluations: tatoeba needs `data`, the files that it is scored on\."):
        planned(tmp_path, evaluations=[{"task": "tatoeba"}])
    with pytest.raises(DataError, match=r"evaluations: .*/none, data of tatoeba, is missing\."):
        check_task_files(planned(tmp_path, evaluations=[{"task": "tatoeba", "data": "none"}]))
    found = cells(planned(tmp_path, evaluations=[{"task": "alignment"}], finetunings=[]))
    assert [(cell.kind, cell.task, cell.model, cell.data) for cell in found] == [
        (EVALUATION, "alignment", "hub/a", ()),
        (EVALUATION, "alignment", "hub/b", ()),
    ]


def test_data_that_encoders_share_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Forty encoders of `align/two-cores` read its dictionaries forty times: three minutes of a plan."""
    (tmp_path / "pages").mkdir()
    for end in ("fra", "eng"):
        (tmp_path / "pages" / f"tatoeba.fra-eng.{end}").write_text("one\n")
    read, check_data = [], type(TASKS["tatoeba"]).check_data

    def counted(task: Any, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        read.append((data.name, languages))
        return check_data(task, data, languages)

    monkeypatch.setattr(type(TASKS["tatoeba"]), "check_data", counted)
    asked = [{"task": "tatoeba", "data": "pages"}]
    encoders = [{"recipe": "tiny/mlm", "label": name, "settings": [f"notes={name}"]} for name in "ab"]
    check_task_files(planned(tmp_path, encoders=encoders, seeds=[0, 1, 2], evaluations=asked, finetunings=[]))
    assert read == [("pages", None)]


def test_a_study_extends_another_and_names_what_differs(tmp_path: Path):
    arms = [{"recipe": "tiny/{recipe}", "settings": ["seed={seed}"]}, {"model": "{encoder}"}]
    whole = write(tmp_path, encoders=arms, encoder="hub/a", values={"recipe": "mlm", "seed": 1}, seeds=[0, 1])
    (tmp_path / "larger.yaml").write_text(f"extends: {whole}\nvalues: {{recipe: xlm, seed: 2}}\nseeds: [5]\n")
    own, larger = (load_study(str(path)) for path in (whole, tmp_path / "larger.yaml"))
    assert [one.shown for one in own.encoders] == ["tiny/mlm seed=1", "hub/a"]
    assert [one.shown for one in larger.encoders] == ["tiny/xlm seed=2", "hub/a"]
    assert (larger.name, larger.seeds, larger.finetunings) == ("larger", (5,), own.finetunings)


def test_faults_of_a_study_that_extends_another_name_the_file(tmp_path: Path):
    whole, larger = write(tmp_path, encoders=[{"recipe": "{recipe}"}], seeds="one"), tmp_path / "larger.yaml"
    larger.write_text(f"extends: {whole}\nvalues: {{recipe: tiny/mlm}}\n")
    with pytest.raises(ConfigError, match=rf"^{whole}: 'seeds' "):
        load_study(str(larger))
    larger.write_text(f"extends: {whole}\nvalues: {{name: tiny/mlm}}\nseeds: [0]\n")
    with pytest.raises(ConfigError, match=r"encoders have \{recipe\}, which nothing stands for; `values` may have"):
        load_study(str(larger))
    larger.write_text(f"extends: {larger}\n")
    with pytest.raises(ConfigError, match=rf"^{larger} extends itself: larger\.yaml -> larger\.yaml\.$"):
        load_study(str(larger))


def test_the_scales_of_align_have_one_list_of_arms():
    tiny, *others = (load_study(f"align/{scale}") for scale in ("tiny", "two-cores", "one-h100", "paper"))
    assert len(tiny.encoders) == 11
    for study in others:
        assert [one.shown for one in study.encoders] == [one.shown for one in tiny.encoders]
        assert {one.recipe for one in study.encoders if one.recipe} == {f"align/{study.scale}"}
        assert study.encoder == study.encoders[0].model


def test_the_root_is_that_of_each_recipe_unless_it_is_given(tmp_path: Path):
    settings = [f"data.root={tmp_path}"]
    both = [{"recipe": "tiny/mlm", "settings": settings}, {"recipe": "tiny/xlm", "settings": ["data.root=/other"]}]
    assert [one.root for one in planned(tmp_path, root=None, encoders=both).encoders] == [tmp_path, Path("/other")]
    assert {cell.data for cell in tuned(tmp_path, root=None, encoders=both)} == {(f"{tmp_path}/pos",), ("/other/pos",)}
    assert {cell.data for cell in tuned(tmp_path, encoders=both)} == {(f"{tmp_path}/pos",)}
    given = {"model": "hub/a"}
    assert [one.root for one in planned(tmp_path, root=None, encoders=[given, both[0]]).encoders] == [tmp_path] * 2
    with pytest.raises(ConfigError, match=r"the recipes read /other and .*; name the folder of the tasks' data\."):
        planned(tmp_path, root=None, encoders=[given, *both])


def test_missing_files_are_found_before_anything_runs(tmp_path: Path):
    file = write(tmp_path, encoders=[{"recipe": "tiny/mlm"}], data_from="xalign data demo")
    (tmp_path / "pos" / "en.dev.conllu").unlink()
    said = r"/pos: no dev file in en, such as en\.dev\.conllu; pos needs it\. .*Its data come from: xalign data demo$"
    with pytest.raises(DataError, match=said):
        check_task_files(plan_study(load_study(str(file)), tmp_path / "runs", str))
    assert re.search(
        f"2 cells: 2 waiting\nPower: .*\nBefore it can run: .*{said}", show_plan(str(file), tmp_path / "runs")
    )


def test_evaluations_of_one_task_are_told_apart_by_their_folders(tmp_path: Path):
    asked = [{"task": "tatoeba", "data": "tatoeba"}, {"task": "tatoeba", "data": "pages"}, {"task": "alignment"}]
    for folder in ("tatoeba", "pages"):
        (tmp_path / folder).mkdir()
    found = cells(planned(tmp_path, encoders=[{"recipe": "tiny/mlm"}], evaluations=asked, finetunings=[]))
    shown = [str(cell) for cell in found]
    assert shown == [
        "tiny/mlm (seed 0): tatoeba",
        "tiny/mlm (seed 0): tatoeba on pages",
        "tiny/mlm (seed 0): alignment",
    ]


def test_missing_texts_of_a_recipe_are_said_with_the_plan(tmp_path: Path):
    settings = [f"data.root={tmp_path}"]
    encoders = [{"recipe": f"tiny/{name}", "settings": settings} for name in ("mlm", "align-mlm")]
    shown = show_plan(str(write(tmp_path, encoders=encoders)), tmp_path / "runs")
    assert re.search(
        rf"4 cells: 4 waiting\nPower: .*\nBefore it can run: {tmp_path}/\S+ does not exist\.[^\n]*$", shown
    )


@pytest.mark.parametrize(
    ("encoders", "keys", "said"),
    [
        (["tiny/mlm", "tiny/xlm"], {}, r"one training run of an arm decides nothing; `seeds` has 1\."),
        (["tiny/mlm"], {"seeds": [0, 1]}, "nothing here is trained and compared"),
        (
            ["tiny/mlm", "tiny/xlm"],
            {"seeds": [0, 1, 2], "spread": {"languages": 3, "seeds": 0.1}},
            r"3 seeds and 1 arms beside .*, 20 languages 2\.0; .* 3 between languages and 0\.1 ",
        ),
    ],
)
def test_the_plan_says_what_the_design_can_decide(
    tmp_path: Path, encoders: list[str], keys: dict[str, Any], said: str
) -> None:
    file = write(tmp_path, encoders=[{"recipe": recipe} for recipe in encoders], **keys)
    assert re.search(f"Power: .*{said}", show_plan(str(file), tmp_path / "runs"))


def test_files_that_no_task_reads_are_named_before_a_cluster_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from xalign_ray.studies.study import run_study
    from xalign_ray.train import cluster

    def connect(*_: object) -> None:
        raise TrainingError("no cluster is wanted here")

    monkeypatch.setattr(cluster, "connect", connect)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text("{}")
    file = write(tmp_path, encoders=[{"model": str(tmp_path / "encoder")}])
    for name in ("de.test.conllu", "german.conllu"):
        (tmp_path / "pos" / name).write_text(SENTENCE)
    with pytest.raises(TrainingError, match="no cluster is wanted here"):
        run_study(str(file), tmp_path / "runs", ["mlflow=off"])
    assert capsys.readouterr().err == (
        f"Study {file.stem}: planning its cells; output is {tmp_path / 'runs'}.\n"
        f"pos: Not read, since no name of the task fits: 1 file, {tmp_path / 'pos' / 'german.conllu'}.\n"
    )


def test_an_item_with_over_is_one_for_each_combination(tmp_path: Path) -> None:
    arm = {"recipe": "tiny/{method}", "settings": ["train.max_steps={steps}"], "label": "{method} {steps}"}
    task = POS | {"train_language": "{code}", "languages": ["{code}"], "over": {"code": ["de", "es"]}}
    arms = [arm | {"over": {"method": ["mlm", "xlm"], "steps": [10, 20]}}]
    study = load_study(str(write(tmp_path, encoders=arms, finetunings=[task])))
    assert [one.shown for one in study.encoders] == ["mlm 10", "mlm 20", "xlm 10", "xlm 20"]
    assert study.encoders[1].settings == ("train.max_steps=20",)
    assert [(one.train_language, one.languages) for one in study.finetunings] == [("de", ("de",)), ("es", ("es",))]
    with pytest.raises(ConfigError, match=r"encoders have \{steps\}, which nothing stands for"):
        load_study(str(write(tmp_path, encoders=[arm | {"over": {"method": ["mlm"]}}])))
