"""The commands for cann-recipes-train: the script's, flag by flag, except for differences that have a reason."""

from __future__ import annotations

import pytest

from scripts.command_recipes.differences import LEFT_OUT, arguments, flag_value, variable_value
from scripts.command_recipes.record import record
from scripts.command_recipes.sources import BY_NAME
from scripts.command_recipes.table import load_facts

FACTS = load_facts()
SCRIPT = """
export SWITCH=1
BATCH=$((4 * SP))
python3 -m verl.trainer.main_ppo data.train_batch_size=${BATCH} data.train_files="$(pwd)/train.parquet" $@ >> log 2>&1
"""


def test_every_script_has_a_table_of_its_commit() -> None:
    assert {name: (facts.commit, facts.path) for name, facts in FACTS.items()} == {
        name: (source.commit, source.path) for name, source in BY_NAME.items()
    }


@pytest.mark.parametrize("name", FACTS)
def test_a_command_has_the_flags_of_the_script_in_their_order(name: str) -> None:
    source, facts = BY_NAME[name], FACTS[name]
    given = arguments(source, facts)
    assert given[:3] == ["python3", "-m", facts.module]
    pairs = [argument.partition("=") for argument in given[3:]]
    assert [key for key, _, _ in pairs] == list(facts.flags)
    unexplained = {
        key: (text, facts.flags[key])
        for key, _, text in pairs
        if text != facts.flags[key] and not flag_value(source, key, facts.flags[key]).reason
    }
    assert unexplained == {}


@pytest.mark.parametrize("name", FACTS)
def test_no_command_or_variable_keeps_a_place_of_the_script(name: str) -> None:
    source, facts = BY_NAME[name], FACTS[name]
    values = [variable_value(source, key, text) for key, text in facts.environment.items()]
    texts = [*arguments(source, facts), *(value.text for value in values if value is not None)]
    assert [text for text in texts if "$" in text or "/path/to" in text or "your_" in text] == []


def test_a_variable_that_is_left_out_is_one_of_a_script() -> None:
    assert set(LEFT_OUT) <= {name for facts in FACTS.values() for name in facts.environment}


def test_a_script_is_recorded_without_running_it() -> None:
    flags = {"data.train_batch_size": "8", "data.train_files": "$PWD/train.parquet"}
    assert record(SCRIPT, ("export EARLIER=2\nray start --head\n",), (("SP", "2"),)) == (
        "verl.trainer.main_ppo",
        flags,
        {"EARLIER": "2", "SWITCH": "1"},
    )


def test_a_script_that_trains_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 commands that train"):
        record(SCRIPT + SCRIPT)
