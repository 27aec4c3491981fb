"""Writing the folder: whole or not at all, weights that do not fit refused, languages folded exactly."""

from __future__ import annotations

import json
import os
import shutil
import stat
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from xalign_ray.config.derive import method_of
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import export, fold
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify
from xalign_ray.models.sentence_files import read_sentence_files
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.work.artifacts import LOCK
from xalign_ray.work.locks import hold

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
FACTS = {"recipe": "tiny/mlm", "fingerprint": "00", "step": 1}


@pytest.fixture
def config():
    return RunConfig.model_validate(
        {
            "data": {"corpora": [{"format": "text", "language": "en", "paths": ["x"]}], "max_seq_length": 8},
            "model": SIZES,
            "train": {"max_steps": 1, "global_batch_size": 1},
        }
    )


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}
    Tokenizer(models.WordLevel(words, unk_token="[PAD]")).save(str(folder / "tokenizer.json"))
    special = SimpleNamespace(pad=0, cls=1, sep=2)
    return SimpleNamespace(languages=["en"], vocab_size=20, special=special, tokenizer_folder=folder, new_rows={})


@pytest.fixture
def state(config):
    return state_of(build_encoder(config.model, 20, ["en"], 8, pad_id=0))


def state_of(encoder):
    return {f"encoder.{name}": value for name, value in encoder.state_dict().items()}


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_fold_puts_segment_and_language_into_one_row():
    languages, segments = torch.tensor([[10.0], [20.0], [30.0]]), torch.tensor([[1.0], [2.0]])
    assert fold(languages, segments).flatten().tolist() == [11.0, 12.0, 21.0, 22.0, 31.0, 32.0]


def test_a_second_export_replaces_the_first_and_leaves_nothing_beside_it(config, prepared, state, tmp_path):
    out = tmp_path / "run" / "export"
    export(state, config, prepared, out, FACTS)
    (out / "stale").write_text("of an older step")
    export(state, config, prepared, out, FACTS)
    assert files(out) == [
        "config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    ]  # fmt: skip
    assert files(out.parent) == ["export"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_others_may_read_the_files_as_the_umask_says(config, prepared, tmp_path, mask):
    model = config.model.model_validate({**SIZES, "language_embeddings": True, "conditioned_head": True})
    config = config.model_copy(update={"model": model})
    encoder = build_encoder(model, 20, ["en"], 8, pad_id=0)
    before = os.umask(mask)
    try:
        export(state_of(encoder), config, prepared, tmp_path / "e", FACTS)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "e").iterdir()}
    assert len(modes) >= 4
    assert set(modes.values()) == {0o666 & ~mask}
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o777 & ~mask


def test_an_export_that_fails_leaves_the_older_one_whole(config, prepared, state, tmp_path):
    out = tmp_path / "run" / "export"
    export(state, config, prepared, out, FACTS)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    prepared.tokenizer_folder = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        export(state, config, prepared, out, FACTS | {"step": 2})
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert files(out.parent) == ["export"]


def test_what_a_killed_export_leaves_is_removed_by_who_locks_the_run_next(
    config, prepared, state, tmp_path, monkeypatch
):
    prepared.tokenizer_folder = tmp_path / "gone"
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(FileNotFoundError):
        export(state, config, prepared, tmp_path / "run" / "export", FACTS)
    monkeypatch.undo()
    (left,) = (tmp_path / "run").iterdir()
    left.rename(left.with_name(left.name.replace(f".{os.getpid()}.", ".999999999.")))
    with hold(tmp_path / "run", "export"):
        assert files(tmp_path / "run") == [LOCK]


def test_the_tied_decoder_may_be_left_out_of_the_state(config, prepared, state, tmp_path):
    without = {name: value for name, value in state.items() if ".decoder." not in name}
    assert len(without) == len(state) - 2
    export(without, config, prepared, tmp_path / "one", FACTS)
    export(state, config, prepared, tmp_path / "two", FACTS)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_weights_of_another_encoder_are_refused_by_name(config, prepared, state, tmp_path):
    bias = "cls.predictions.bias"
    state[f"encoder.hf.{bias}x"] = state.pop(f"encoder.hf.{bias}")
    with pytest.raises(CheckpointError) as error:
        export(state, config, prepared, tmp_path / "export", FACTS)
    assert str(error.value) == (f"The weights do not fit this recipe's encoder: missing {bias}; not known {bias}x.")
    assert files(tmp_path) == ["tokenizer"]


def test_weights_without_language_embeddings_are_refused_where_the_recipe_has_them(config, prepared, state, tmp_path):
    config = config.model_copy(update={"model": config.model.model_copy(update={"language_embeddings": True})})
    with pytest.raises(CheckpointError, match=r"missing encoder\.languages\.weight; not known none"):
        export(state, config, prepared, tmp_path / "export", FACTS)


PAIRS = "data.parallel=[{format: tsv, languages: [en, qgr], paths: [x], align: hmm}]"
SMALL = [f"model.{key}={value}" for key, value in SIZES.items()]
CONTRASTED = "{{kind: contrasted_pairs, text: {}}}"
PPA = "objectives=[{kind: masked_lm}, {kind: momentum_contrast}]"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (["streams=[{kind: masked_text}]"], "mlm"),
        (["streams=[{kind: masked_text}, {kind: masked_pairs}]"], "xlm"),
        (["streams=[{kind: code_switched_labels, t: 0.7}]"], "dict-mlm-70"),
        (["streams=[{kind: code_switched_labels, variant: input_swap}]"], "dict-mlm-50-input-swap"),
        (["streams=[{kind: code_switched_copy}]", "data.reserve_fraction=0.5"], "dict-tlm"),
        (["objectives=[{kind: masked_lm}, {kind: dictionary_alignment}]"], "align-mlm"),
        (["objectives=[{kind: masked_lm}, {kind: dictionary_alignment, shuffled: true}]"], "align-mlm-shuffled"),
        (["streams=[{kind: aligned_pairs}]"], "tlm"),
        (["streams=[{kind: aligned_pairs}]", "objectives=[{kind: masked_lm}, {kind: word_exchange}]"], "weam"),
        ([f"streams=[{CONTRASTED.format('joined')}]"], "tlm"),
        ([f"streams=[{CONTRASTED.format('apart')}]", "data.reserve_fraction=0.2"], "mlm"),
        ([f"streams=[{CONTRASTED.format('joined')}]", PPA], "ppa"),
        ([f"streams=[{CONTRASTED.format('apart')}]", "data.reserve_fraction=0.2", PPA], "ppa-mlm"),
        ([f"streams=[{CONTRASTED.format('none')}]", "objectives=[{kind: momentum_contrast}]"], "ppa-no-tlm"),
        (
            ["streams=[{kind: contrasted_pairs}]", "objectives=[{kind: masked_lm}, {kind: sentence_contrast}]"],
            "contrast",
        ),
        (
            [
                "streams=[{kind: masked_pairs}, {kind: aligned_pairs}, {kind: contrasted_pairs}]",
                "objectives=[{kind: masked_lm}, {kind: word_exchange}, {kind: momentum_contrast}]",
            ],
            "xlm+weam+ppa",
        ),
    ],
)
def test_the_method_is_called_as_in_its_paper(settings, name):
    assert method_of(load_recipe("tiny/mlm", [PAIRS, *SMALL, *settings]).config) == name


@pytest.mark.parametrize(
    ("family", "streams", "pairs"),
    [
        ("bert", "{kind: masked_text}", None),
        ("bert", "{kind: masked_text}, {kind: masked_pairs}", {"positions": "reset", "segments": False}),
        ("bert", "{kind: contrasted_pairs}, {kind: masked_pairs}", {"positions": "running", "segments": True}),
        ("bert", "{kind: aligned_pairs, segments: true}", {"positions": "running", "segments": True}),
        ("xlm-r", "{kind: contrasted_pairs}", {"positions": "running", "segments": False}),
        ("modernbert", "{kind: masked_pairs, segments: true}", {"positions": "reset", "segments": False}),
    ],
)
def test_the_config_says_how_pairs_were_laid_out(prepared, tmp_path, family, streams, pairs):
    config = load_recipe("tiny/mlm", [PAIRS, *SMALL, f"model.family={family}", f"streams=[{streams}]"]).config
    prepared.pair_words = lambda _: []
    shape = (20, prepared.languages, config.data.max_seq_length, 0)
    export(state_of(build_encoder(config.model, *shape)), config, prepared, tmp_path / "export", FACTS)
    found = json.loads((tmp_path / "export" / "config.json").read_text())
    assert found["xalign_pairs"] == pairs
    assert found["xalign_segments"] == (2 if family == "bert" else 1)


def test_an_export_of_ppa_is_the_query_encoder(prepared, tmp_path):
    losses = "objectives=[{kind: masked_lm}, {kind: momentum_contrast, queue_size: 4, projection: 4}]"
    config = load_recipe("tiny/mlm", [PAIRS, *SMALL, "streams=[{kind: contrasted_pairs}]", losses]).config
    prepared.pair_words = lambda _: []
    encoder = build_encoder(config.model, 20, prepared.languages, 48, pad_id=0)
    objectives = EncoderWithLosses(encoder, config.objectives, None, seed=0, special=SimpleNamespace(cls=2, sep=3))
    with torch.no_grad():
        for parameter in encoder.parameters():  # the key encoder stays behind
            parameter += 0.5
    state = objectives.state_dict()
    key = "losses.momentum_contrast.average.tower.encoder.hf.bert.embeddings.LayerNorm.bias"
    assert not torch.equal(state[key], state["encoder.hf.bert.embeddings.LayerNorm.bias"])
    export(state, config, prepared, tmp_path / "export", FACTS)
    opened = BertForMaskedLM.from_pretrained(tmp_path / "export").state_dict()
    assert opened.keys() == encoder.hf.state_dict().keys()
    assert all(torch.equal(value, opened[name]) for name, value in encoder.hf.state_dict().items())


def test_an_export_of_a_folder_with_new_pieces_has_their_rows(config, prepared, tmp_path):
    BertForMaskedLM(BertConfig(vocab_size=18, max_position_embeddings=8, **SIZES)).save_pretrained(tmp_path / "start")
    model = config.model.model_copy(update={"init_from": str(tmp_path / "start")})
    new_rows = {18: [3], 19: [4, 5]}
    encoder = build_encoder(model, 20, ["en"], 8, pad_id=0, new_rows=new_rows)
    export(state_of(encoder), config.model_copy(update={"model": model}), prepared, tmp_path / "export", FACTS)
    opened = BertForMaskedLM.from_pretrained(tmp_path / "export")
    assert torch.equal(opened.get_input_embeddings().weight, encoder.hf.get_input_embeddings().weight)
    assert opened.config.vocab_size == 20


def contrasted(init_from: str | None, *objectives: str) -> RunConfig:
    """Pairs contrasted as they are, with further losses on their masked text."""
    return RunConfig.model_validate(
        {
            "data": {
                "corpora": [{"format": "text", "language": "en", "paths": ["x"]}],
                "parallel": [{"format": "tsv", "languages": ["en", "de"], "paths": ["y"]}],
                "max_seq_length": 8,
            },
            "streams": [{"kind": "contrasted_pairs", "text": "joined" if objectives else "none"}],
            "objectives": [{"kind": "sentence_contrast"}, *({"kind": kind} for kind in objectives)],
            "model": {"init_from": init_from, "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2},
            "train": {"max_steps": 1, "global_batch_size": 1},
        }
    )


@pytest.mark.parametrize(
    ("start", "objectives", "kept"),
    [(BertModel, (), False), (BertModel, ("masked_lm",), True), (BertForMaskedLM, (), True), (None, (), False)],
    ids=["none was given", "trained", "was given", "from scratch"],
)
def test_a_head_that_nothing_trained_is_not_exported(prepared, tmp_path, start, objectives, kept):
    if start is not None:
        code = {"auto_map": {"AutoModel": "modeling_own.OwnModel"}}  # of files that no export holds
        start(BertConfig(vocab_size=20, **SIZES, **code)).save_pretrained(tmp_path / "start")
    config = contrasted(str(tmp_path / "start") if start else None, *objectives)
    encoder = build_encoder(config.model, 20, ["en", "de"], 8, pad_id=0, with_head=config.needs_head)
    export(state_of(encoder), config, prepared, tmp_path / "export", FACTS)
    said = json.loads((tmp_path / "export" / "config.json").read_text())
    assert said["architectures"] == ["BertForMaskedLM" if kept else "BertModel"]
    assert "auto_map" not in said
    opened = BertModel.from_pretrained(tmp_path / "export", add_pooling_layer=False)
    assert torch.equal(opened.embeddings.word_embeddings.weight, encoder.hf.get_input_embeddings().weight)


def test_the_export_has_the_length_of_an_older_file_and_says_which_heads_it_lacks(prepared, tmp_path, capsys):
    start = tmp_path / "start"
    BertModel(BertConfig(vocab_size=20, **SIZES)).save_pretrained(start)
    (start / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.Transformer"}]))
    (start / "sentence_xlm-roberta_config.json").write_text(json.dumps({"max_seq_length": 6}))
    (start / "colbert_linear.pt").write_bytes(b"")
    config = contrasted(str(start))
    encoder = build_encoder(config.model, 20, ["en", "de"], 8, pad_id=0, with_head=False)
    export(state_of(encoder), config, prepared, tmp_path / "export", FACTS)
    assert [read_sentence_files(str(tmp_path / one)).max_length for one in ("start", "export")] == [6, 6]
    assert json.loads((tmp_path / "export" / "sentence_bert_config.json").read_text()) == {"max_seq_length": 6}
    said = f"colbert_linear.pt of {start} are not in the export: they fitted the encoder as it was."
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ([{"kind": "masked_text"}], [0, 5, 2, 2, 6, 2]),  # XLM-R's own, which no row contradicts
        ([{"kind": "masked_pairs"}], [0, 5, 2, 6, 2]),
        ([{"kind": "masked_pairs", "double_separator": True}], [0, 5, 2, 2, 6, 2]),
        ([{"kind": "contrasted_pairs", "text": "apart"}], [0, 5, 2, 2, 6, 2]),
    ],
)
def test_the_exported_tokenizer_joins_pairs_as_rows_do(tmp_path, streams, expected):
    folder = tmp_path / "tokenizer"
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "ka", "lo"]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    special = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    names = {f"{name}_token": token for name, token in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    tree = contrasted(None, "masked_lm").model_dump(mode="json")
    tree |= {"streams": streams, "objectives": [{"kind": "masked_lm"}]}
    tree["data"] |= {"reserve_fraction": 0.2, "max_seq_length": 16}
    config = RunConfig.model_validate(tree)
    encoder = build_encoder(config.model, 20, ["en", "de"], 16, pad_id=1)
    special_ids = SimpleNamespace(pad=1, cls=0, sep=2)
    prepared = SimpleNamespace(languages=["en"], vocab_size=20, special=special_ids, tokenizer_folder=folder)
    export(state_of(encoder), config, prepared, tmp_path / "export", FACTS)
    assert AutoTokenizer.from_pretrained(tmp_path / "export")("ka", "lo")["input_ids"] == expected
    assert json.loads((tmp_path / "export" / "config.json").read_text())[TOKENIZER_KEY] == identify(tmp_path / "export")
