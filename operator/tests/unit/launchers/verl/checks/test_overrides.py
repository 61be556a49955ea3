"""Tables about keys of verl agree with the modules that own the keys."""

from builders import small_spec, typed, validate
from corpus.bad import key
from corpus.overrides import LEGACY as LEGACY_CASES

from rljob.launchers.verl.checks.overrides import CHECKS, LAUNCHERS_OWN, LEGACY, WARNINGS
from rljob.launchers.verl.table import TYPED_KEYS
from rljob_runtime import launcher_overrides


def test_every_key_that_the_launcher_sets_is_refused() -> None:
    assert set(launcher_overrides.FIXED) - set(TYPED_KEYS) == set(LAUNCHERS_OWN)


def test_no_key_of_earlier_versions_is_one_of_ours() -> None:
    assert not {row.key for row in LEGACY} & set(TYPED_KEYS)
    assert len(LEGACY_CASES) >= 10


def test_a_section_of_another_trainer_is_a_warning() -> None:
    (check,) = WARNINGS
    (found,) = check(typed(small_spec(key("+contract.rollout_seconds", 1.5))))
    assert str(found) == (
        "spec.verl.overrides[+contract.rollout_seconds]: verl has no section contract; only another trainer of the "
        "image can read it"
    )
    for name in ("+trainer.anything", "contract.rollout_seconds", "+contract[a]"):
        assert list(check(typed(small_spec(key(name, 1.5))))) == []


def test_an_integer_that_nothing_can_take_is_refused() -> None:
    """In a file, YAML makes it a decimal number, as kubectl does."""
    found = [str(each) for check in CHECKS for each in check(typed(small_spec(key("data.seed", 2**63))))]
    assert found == ["spec.verl.overrides[data.seed]: holds an integer of more than 64 bits; correct it"]


def test_only_the_first_unknown_keys_get_a_suggestion() -> None:
    names = {f"trainer.total_epoch{number}": 1 for number in range(12)}
    spec = typed(small_spec({"verl": {"overrides": names}}))
    found = [each.message for check in CHECKS for each in check(spec)]
    assert [("did you mean" in message) for message in found] == [True] * 8 + [False] * 4


def test_the_load_of_experts_can_be_asked_for() -> None:
    """docs/reference/definitions.md names both keys."""
    keys = ("enable_rollout_routing_replay", "moe_load_balance_metrics_interval")
    names = dict(zip((f"actor_rollout_ref.rollout.{name}" for name in keys), (True, 5), strict=True))
    checked = validate("sums", small_spec({"verl": {"overrides": names}}))
    assert (checked.violations, checked.warnings) == ((), ())
