"""Tables about keys of verl agree with the modules that own the keys."""

from builders import small_spec, typed
from corpus.bad import key
from corpus.overrides import LEGACY as LEGACY_CASES

from rljob.launchers.verl.checks.overrides import LAUNCHERS_OWN, LEGACY, WARNINGS
from rljob.launchers.verl.job import TYPED_KEYS
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
