"""What earlier cluster generations left is deleted."""

from __future__ import annotations

from doubles.fake import fail_calls
from machine import Machine, left, owned

from rljob.cluster.errors import Forbidden
from rljob.cluster.kinds import CONFIG_MAP, SECRET
from rljob.core.observed import Observed
from rljob.core.plan import DeleteGenerations, Plan


async def observed(machine: Machine) -> Observed:
    return Observed(job=await machine.start())


async def carry_out(machine: Machine, seen: Observed, effect: DeleteGenerations) -> None:
    await machine.reconciler.executor.execute(seen, Plan(effects=(effect,)))


async def test_earlier_generations_are_deleted_except_what_is_kept_or_of_others(machine: Machine) -> None:
    seen = await observed(machine)
    for name, intent in (("c1", "cluster/1"), ("s1", "spec/1"), ("c2", "cluster/2"), ("a", "attempts"), ("k", "code")):
        machine.cluster.put(left(seen.job, name, intent))
    for name in ("c1", "c2"):
        machine.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": owned(seen.job) | {"name": name}})
    foreign = left(seen.job, "f1", "cluster/1")
    foreign["metadata"]["ownerReferences"] = []
    machine.cluster.put(foreign)
    effect = DeleteGenerations(2, frozenset({"s1"}))
    await carry_out(machine, seen, effect)
    names = {item["metadata"]["name"] for item in machine.cluster.objects(CONFIG_MAP)}
    assert names == {"s1", "c2", "a", "k", "f1"}
    assert [item["metadata"]["name"] for item in machine.cluster.objects(SECRET)] == ["c2"]
    await carry_out(machine, seen, effect)


async def test_generations_that_may_not_be_deleted_delay_nothing(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.put(left(seen.job, "c1", "cluster/1"))
    machine.cluster.faults.append(fail_calls("delete", SECRET, Forbidden("no"), times=1))
    await carry_out(machine, seen, DeleteGenerations(2, frozenset()))
    assert len(machine.cluster.objects(CONFIG_MAP)) == 1
