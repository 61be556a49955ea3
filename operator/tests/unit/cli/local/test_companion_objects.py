"""Objects beside the RLJob: ConfigMaps and Secrets become bytes, other kinds are ignored."""

from __future__ import annotations

import pytest

from rljob.cli.errors import UsageError
from rljob.cli.local.companion_objects import read_surroundings


def test_config_maps_secrets_and_claims_are_read() -> None:
    found = read_surroundings(
        [
            {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}, "binaryData": {"b": "AAE="}},
            {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "dg=="}, "stringData": {"t": "w"}},
            {"kind": "PersistentVolumeClaim", "metadata": {"name": "p"}},
            {"kind": "Service", "metadata": {"name": "x"}},
        ]
    )
    assert found.config_maps == {"c": {"a": b"1", "b": b"\0\1"}}
    assert found.secrets == {"s": {"k": b"v", "t": b"w"}}
    assert found.claims == {"p"}


def test_a_secret_that_is_not_base64_is_refused() -> None:
    with pytest.raises(UsageError, match="Secret s: data is not base64"):
        read_surroundings([{"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "plain text"}}])
