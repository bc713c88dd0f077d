"""The table that `python -m benchmarks.clusters` makes of its measurements."""

import json

import pytest

from benchmarks.clusters import table
from benchmarks.clusters.measuring import epochs_of
from benchmarks.clusters.variants import VARIANTS, Variant
from cluster_trainer.settings.config import setting_names
from cluster_trainer.settings.names.spellings import variable_of

ONE, TWO = Variant("one", 1), Variant("two", 2, ideal="one", beside=("other",))


def test_ratios_are_those_of_the_rounds():
    """A machine that is half as fast in one round changes no ratio."""
    rates = {"one": [100.0, 50.0, 100.0], "two": [120.0, 60.0, 130.0], "other": [60.0, 30.0, 65.0]}
    line = table.line("two", TWO, rates)
    assert "| 120 | 60 | 130 |" in line
    assert "0.60 of 2 times one, 2.00 times other" in line


def test_what_was_not_measured_is_not_compared():
    assert table.line("two", TWO, {"two": [1.0]}).endswith("| 1 | 1 | 1 |  |")


def test_one_line_for_each_that_was_measured_in_the_order_of_the_list():
    _, _, *lines = table.lines({"one": ONE, "two": TWO, "three": ONE}, {"two": [1], "one": [1]})
    assert [line.split(" | ")[0] for line in lines] == ["| one", "| two"]


def test_the_first_epoch_does_not_count(tmp_path):
    (tmp_path / "rates.json").write_text("[1.0, 20.0, 30.0]")
    assert epochs_of(tmp_path) == [20.0, 30.0]
    (tmp_path / "worker-0").mkdir()
    lines = [json.dumps({"examples_per_second": rate}) for rate in (1.0, 40.0)]
    (tmp_path / "worker-0/metrics.jsonl").write_text("\n".join(lines))
    assert epochs_of(tmp_path) == [40.0]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_names_others_and_settings_that_there_are(name):
    variant = VARIANTS[name]
    assert {variant.ideal or name, *variant.beside} <= {*VARIANTS}
    settings = {one for one in variant.settings if one.startswith("TRAINER_")}
    assert settings <= {variable_of(one) for one in setting_names()}
