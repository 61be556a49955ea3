"""What the router that holds requests back, and its client, rely on in verl; test_replicas.py runs both."""

from __future__ import annotations

import inspect

from rljob_runtime.launcher_overrides import LATE_ROUTER_CONFIG


def test_verl_creates_the_actor_that_was_registered() -> None:
    import ray
    from verl.workers.rollout import router

    from rljob_runtime.verl_plugin.router import late_router
    from rljob_runtime.verl_plugin.router.late_binding import Limits

    late_router.register(Limits(8, 1, 9_000))
    made = router._resolve_router_class(router._load_router_yaml(str(LATE_ROUTER_CONFIG))["router_class"])
    assert isinstance(made, ray.actor.ActorClass)
    assert made._default_options["max_concurrency"] == 9_000 + late_router.OTHER_CALLS
    assert "cls if isinstance(cls, ray.actor.ActorClass)" in inspect.getsource(router._create_plugin_extension)
    protocol = {name for name in vars(router.RequestLoadBalancer) if not name.startswith("_")}
    ours, theirs = late_router.LateBindingRouter, router.GlobalRequestLoadBalancer
    assert protocol
    for name in protocol:
        wanted = list(inspect.signature(getattr(theirs, name)).parameters)
        assert list(inspect.signature(getattr(ours, name)).parameters)[: len(wanted)] == wanted


def test_our_client_overrides_what_verls_calls() -> None:
    from verl.workers.rollout.llm_server import LLMServerClient

    from rljob_runtime.verl_plugin.router.late_client import MEDIA, LengthClient, group_of

    source = inspect.getsource(LLMServerClient.generate)
    assert "self._acquire_server(\n            request_id,\n            prompt_ids=prompt_ids," in source
    assert all(f"{name}={name}," in source for name in MEDIA)
    assert "self._release_server(" in source
    assert {"generate", "_acquire_server", "_release_server"} <= set(vars(LengthClient))
    assert group_of({"prompt_ids": [1, 2]}) == group_of({"prompt_ids": [1, 2], "image_data": None})
    assert group_of({"prompt_ids": [1, 2]}) != group_of({"prompt_ids": [12]})
    assert group_of({"prompt_ids": [1, 2], "image_data": ["an image"]}) is None
