"""Which scores stand for a run, and which stay in its table."""

from __future__ import annotations

from typing import Any

from xalign_ray.track.headlines import headline_scores, table


def record(metric: str, language: str, value: float, layer: Any = None, **fields: Any) -> dict[str, Any]:
    return {"metric": metric, "language": language, "layer": layer, "value": value, "seed": 0, "step": 20, **fields}


def test_a_layer_curve_is_no_headline() -> None:
    curve = [record("tatoeba_accuracy", "de", 0.1 * layer, layer) for layer in range(3)]
    assert headline_scores([*curve, record("tatoeba_accuracy", "de", 0.7, "last4")], 100) == {
        "tatoeba_accuracy_de": (0.7, 20)
    }


def test_the_mean_over_languages_comes_first_and_survives_the_limit() -> None:
    languages = [record("pos_accuracy", f"l{i}", 0.5) for i in range(200)]
    chosen = headline_scores([*languages, record("pos_accuracy", "all", 0.4)], 100)
    assert list(chosen)[:2] == ["pos_accuracy", "pos_accuracy_l0"]
    assert len(chosen) == 100


def test_a_model_of_unknown_step_is_shown_at_zero() -> None:
    assert headline_scores([record("pos_accuracy", "de", 0.5, step=None)], 100) == {"pos_accuracy_de": (0.5, 0)}


def test_the_table_holds_every_record() -> None:
    records = [record("pos_accuracy", "de", 0.5), record("pos_accuracy", "zh", 0.25, 3)]
    assert table(records) == (
        "metric,language,layer,value,seed,step\npos_accuracy,de,,0.5,0,20\npos_accuracy,zh,3,0.25,0,20\n"
    )
