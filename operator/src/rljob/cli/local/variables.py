"""Environment variables of a local run: those of the manifest, and those that pods get from other sources. Pure.

ConfigMaps and Secrets come from the file. Values of Secrets that are not there are taken from the user's own
environment, where tracker keys and hub tokens usually are. Variables that are found nowhere are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.api.pods import EnvFromSource, EnvVar, PodTemplate
from rljob.api.sources import Initializer
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.local.companion_objects import Surroundings
from rljob.render import pods
from rljob.render.env import operator_env
from rljob.render.initializer_request import token_env

LOOPBACK = "127.0.0.1"
DEFAULTS = {
    # The runtime image sets these for every process: images/runtime/Dockerfile.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
"""Variables of every process. The user's environment takes precedence, and the manifest's variables over both."""


@dataclass
class Variables:
    """Resolves variables and collects those that could not be resolved."""

    job_name: str
    surroundings: Surroundings
    ambient: Mapping[str, str]
    """The user's environment."""
    missing: list[str] = field(default_factory=list)
    """Notes about variables that are not set."""

    def of_workers(self, spec: RLJobSpec) -> dict[str, str]:
        """Return the variables of Ray's processes.

        Workers and head share a machine, and the workers' values take precedence.
        """
        return self._of_container(spec, spec.head.template) | self._of_container(spec, spec.trainer_group.template)

    def of_head(self, spec: RLJobSpec) -> dict[str, str]:
        """Return the launcher's environment; values of the head template override those of the worker template."""
        return self._of_container(spec, spec.trainer_group.template) | self._of_container(spec, spec.head.template)

    def of_initializer(self, spec: RLJobSpec, initializer: Initializer) -> dict[str, str]:
        """Return the variables of an initializer, in the order of render.initializer."""
        template = spec.trainer_group.template
        own = (token_env(initializer), pods.user_env(initializer.env))
        layers = (*own, pods.user_env(template.env), pods.secret_env(spec))
        return self._resolved(spec, template, pods.environment(*layers))

    def of_code_fetch(self, entries: Iterable[dict[str, Any]]) -> dict[str, str]:
        """Return the credentials of a Git repository; the user name is optional."""
        values: dict[str, str] = {}
        for entry in entries:
            reference = entry["valueFrom"]["secretKeyRef"]
            found = self.surroundings.secrets.get(reference["name"], {}).get(reference["key"])
            what = f"key {reference['key']} of Secret {reference['name']}"
            if found is not None or entry["name"] in self.ambient or not reference["optional"]:
                value = self._or_ambient(entry["name"], found, what)
                values |= {entry["name"]: value} if value is not None else {}
        return values

    def _of_container(self, spec: RLJobSpec, template: PodTemplate) -> dict[str, str]:
        """Return the variables of a Ray container, in the order of render.raycluster."""
        user, secrets = pods.user_env(template.env), pods.secret_env(spec)
        layers = (operator_env(spec, template), user, secrets, pods.service_env(spec))
        return self._resolved(spec, template, pods.environment(*layers))

    def _resolved(self, spec: RLJobSpec, template: PodTemplate, variables: list[dict[str, Any]]) -> dict[str, str]:
        values: dict[str, str] = {}
        for source in pods.env_from(spec, template).get("envFrom", []):
            values |= dict(self._all_keys(EnvFromSource.model_validate(source)))
        return values | dict(self._listed(map(EnvVar.model_validate, variables)))

    def _listed(self, variables: Iterable[EnvVar]) -> Iterator[tuple[str, str]]:
        for variable in variables:
            value = self._value(variable)
            if value is not None:
                yield variable.name, value

    def _value(self, variable: EnvVar) -> str | None:
        source = variable.value_from
        if source is None:
            return variable.value or ""
        if source.config_map_key_ref is not None:
            reference = source.config_map_key_ref
            found = self.surroundings.config_maps.get(reference.name, {}).get(reference.key)
            return self._or_ambient(variable.name, found, f"key {reference.key} of ConfigMap {reference.name}")
        if source.secret_key_ref is not None:
            reference = source.secret_key_ref
            found = self.surroundings.secrets.get(reference.name, {}).get(reference.key)
            return self._or_ambient(variable.name, found, f"key {reference.key} of Secret {reference.name}")
        return self._of_pod(variable)

    def _of_pod(self, variable: EnvVar) -> str | None:
        reference = variable.value_from.field_ref if variable.value_from else None
        known = {
            "status.podIP": LOOPBACK,
            "status.hostIP": LOOPBACK,
            "metadata.name": self.job_name,
            "metadata.namespace": "default",
        }
        path = reference.field_path if reference else ""
        if path not in known:
            self._miss(f"{variable.name} is not set: a local run has no pod with a {path}")
        return known.get(path)

    def _all_keys(self, source: EnvFromSource) -> Iterator[tuple[str, str]]:
        if source.config_map_ref is not None:
            what, found = "ConfigMap", self.surroundings.config_maps.get(source.config_map_ref.name)
            name = source.config_map_ref.name
        else:
            name = source.secret_ref.name if source.secret_ref else ""
            what, found = "Secret", self.surroundings.secrets.get(name)
        if found is None:
            self._miss(f"{what} {name} is not in the file; set its variables in your environment")
        for key, value in (found or {}).items():
            yield f"{source.prefix or ''}{key}", value.decode(errors="replace")

    def _or_ambient(self, name: str, found: bytes | None, what: str) -> str | None:
        if found is not None:
            return found.decode(errors="replace")
        if name not in self.ambient:
            self._miss(f"{name} is not set: {what} is not in the file, and your environment has no {name}")
        return self.ambient.get(name)

    def _miss(self, sentence: str) -> None:
        if sentence not in self.missing:
            self.missing.append(sentence)
