"""Tables about keys of verl agree with the modules that own the keys."""

from corpus.overrides import LEGACY as LEGACY_CASES

from rljob.launchers.verl.checks.overrides import LAUNCHERS_OWN, LEGACY
from rljob.launchers.verl.job import TYPED_KEYS
from rljob_runtime import launcher_overrides


def test_every_key_that_the_launcher_sets_is_refused() -> None:
    assert set(launcher_overrides.FIXED) - set(TYPED_KEYS) == set(LAUNCHERS_OWN)


def test_no_key_of_earlier_versions_is_one_of_ours() -> None:
    assert not {row.key for row in LEGACY} & set(TYPED_KEYS)
    assert len(LEGACY_CASES) >= 10
