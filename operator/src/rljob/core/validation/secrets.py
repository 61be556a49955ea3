"""Literal secrets: a manifest is stored in Git, shown by `kubectl get -o yaml` and copied into the job's snapshot.

The checks look for revealing names and for the formats of well-known tokens. A message never repeats the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rljob.api.secret_shapes import shape_of_secret
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.pods import is_ours
from rljob.core.validation.violation import Check, Violation

FIX = "put it into a Secret and reference it in spec.secretRefs (or valueFrom.secretKeyRef)"
SECRET_NAME = re.compile(
    r"(?i)(^|[_.-])(token|api_?key|secret|secret_?key|password|passwd|access_?key|private_?key|credentials?)$"
)
NO_SECRETS = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"})
"""Values of switches such as HF_HUB_DISABLE_IMPLICIT_TOKEN."""
SPECIAL_TOKENS = frozenset({"bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "image", "video", "audio"})
"""Tokens of a tokenizer, such as data.pad_token."""
_HIDDEN = re.compile(
    r"[.](env|command|args|resumeArgs|overrides|initContainers|sidecars|podSpecPatch|secretRefs|url)\b"
)


def may_hold_secrets(path: str, value: object) -> bool:
    """Report whether a value below this path may be a secret, so that no message may repeat it."""
    return _HIDDEN.search(path) is not None or shape_of_secret(str(value)) is not None


def _variables_hold_no_secrets(spec: RLJobSpec) -> Iterator[Violation]:
    """A variable whose name suggests a secret must take its value from a Secret."""
    for field, variable in fields.variables(spec):
        yield from _judge(field, variable.name, variable.value or "")
    for path, container in fields.containers(spec):
        for index, variable in enumerate(container.env):
            yield from _judge(f"{path}.env[{index}]", variable.name, variable.value or "")
    for name, patch in (("head", spec.pod_spec_patch.head), ("workers", spec.pod_spec_patch.workers)):
        listed = (patch or {}).get("containers")
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            yield from _of_container(f"spec.podSpecPatch.{name}.containers[{index}]", entry)


def _of_container(field: str, container: object) -> Iterator[Violation]:
    env = container.get("env") if isinstance(container, Mapping) else None
    for index, variable in enumerate(env if isinstance(env, list) else ()):
        if isinstance(variable, Mapping) and isinstance(variable.get("value"), str):
            yield from _judge(f"{field}.env[{index}]", str(variable.get("name", "")), variable["value"])


def _overrides_hold_no_secrets(spec: RLJobSpec) -> Iterator[Violation]:
    """Overrides are written to job.json, which every pod and every reader of ConfigMaps can read."""
    for key, value in spec.verl.overrides.items():
        for path, text in fields.texts(value, key):
            name = path.split(".")[-1].split("[")[0]
            if name.lower().removesuffix("_token") not in SPECIAL_TOKENS:
                yield from _judge(f"spec.verl.overrides[{key}]", name, text)


def _commands_hold_no_secrets(spec: RLJobSpec) -> Iterator[Violation]:
    """Command lines are visible to `ps` on the node."""
    lists = [(f"spec.initializers[{i}].command", entry.command) for i, entry in enumerate(spec.initializers)]
    if (command := spec.command) is not None:
        lists.append(("spec.launcher.command.args", command.args))
        resumed = command.checkpoint.resume_args if command.checkpoint else []
        lists.append(("spec.launcher.command.checkpoint.resumeArgs", resumed))
    for index, service in enumerate(spec.services):
        lists += [(f"spec.services[{index}].{name}", getattr(service, name)) for name in ("command", "args")]
    for field, container in fields.containers(spec):
        lists += [(f"{field}.command", container.command), (f"{field}.args", container.args)]
    for field, words in lists:
        for path, text in fields.texts(words, field):
            if (what := shape_of_secret(text)) is not None:
                yield Violation(path, f"contains {what}; {FIX}, and read it from the variable")


def _arguments_hold_no_secrets(spec: RLJobSpec) -> Iterator[Violation]:
    """An argument such as `trainer.api_key=...` is written to job.json, like an override."""
    command = spec.command
    for index, text in enumerate(command.args if command else ()):
        key, separator, value = text.partition("=")
        name = key.rpartition(".")[2].lstrip("-+")
        typical = name.lower().removesuffix("_token") in SPECIAL_TOKENS
        # A value in the format of a secret is reported above.
        named = name.replace("-", "_")
        if separator and not typical and _is_named_secret(named, value) and shape_of_secret(text) is None:
            yield _named(f"spec.launcher.command.args[{index}]", named)


def _judge(field: str, name: str, value: str) -> Iterator[Violation]:
    if (what := shape_of_secret(value)) is not None:
        yield Violation(field, f"{name} contains {what}; {FIX}")
    elif _is_named_secret(name, value):
        yield _named(field, name)


def _is_named_secret(name: str, value: str) -> bool:
    return SECRET_NAME.search(name) is not None and not is_ours(name) and value.lower() not in NO_SECRETS


def _named(field: str, name: str) -> Violation:
    return Violation(field, f"{name} looks like a secret and has a literal value; {FIX}")


CHECKS: tuple[Check, ...] = (
    _variables_hold_no_secrets,
    _overrides_hold_no_secrets,
    _commands_hold_no_secrets,
    _arguments_hold_no_secrets,
)
