"""Every pattern of the API types, with a sentence that describes the allowed form and gives an example.

The types take their patterns from here. `problem_text` turns a finding of pydantic into words for people who write
manifests; the checks of specs and of accelerator tables use it. A pattern without a sentence does not exist: a test
looks up every pattern of the schemas.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic_core import ErrorDetails


class Form(NamedTuple):
    """A pattern of a text field, and the words for it."""

    pattern: str
    must: str
    """What the text must be, with an example."""


LABEL = Form(
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
    "must consist of lower-case letters, digits and '-', start with a letter and end with a letter or digit (a "
    "DNS-1035 label), such as trainer-0",
)
EXAMPLE_PATH = "/data/model"
ABSOLUTE_PATH = Form(r"^/", f"must be an absolute path inside the pods, such as {EXAMPLE_PATH}")
DECIMAL = Form(
    r"^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    'must be a decimal number that is not negative, as a string, such as "0.9" or "1e-6"',
)
SIGNED_DECIMAL = Form(
    r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    'must be a decimal number as a string, such as "-1", "0.9" or "1e-6"',
)
METRIC = Form(
    r"^(NaN|[-+]?(Inf|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?))$",
    'must be a number, NaN or Inf as a string, such as "0.71"',
)
QUANTITY = Form(
    r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$",
    "must be a Kubernetes quantity: a number, directly followed by m, k, Ki, M, Mi, G, Gi, T, Ti or nothing (case "
    "matters), such as 500m, 8 or 12Gi",
)
VARIABLE_NAME = Form(
    r"^[-._a-zA-Z][-._a-zA-Z0-9]*$",
    "must be the name of an environment variable: letters, digits, '_', '-' and '.', not starting with a digit, such "
    "as HF_HOME",
)
REPOSITORY_URL = Form(
    r"^(https?|git|file)://[^@]+$",
    "must be a URL that starts with https://, http://, git:// or file:// and contains no user or password (no '@'), "
    "such as https://example.com/team/rewards.git; provide credentials with secretRef",
)
SERVER_URL = Form(
    r"^https?://[^@\s]+$",
    "must be a URL that starts with https:// or http:// and contains no user or password (no '@'), such as "
    "https://huggingface.co; provide credentials with secretRef",
)
HUB_REPOSITORY = Form(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$",
    "must be owner and name of a repository of the hub, such as team/sums-7b",
)
COMMIT = Form(
    r"^[0-9a-f]{40}$",
    "must be a full commit hash: 40 hexadecimal digits in lower case, as `git rev-parse HEAD` prints it",
)
HUB_REPOSITORY = Form(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$",
    "must be the name of a repository on a hub: owner, '/' and name, such as Qwen/Qwen3-8B",
)
HUB_REVISION = Form(
    r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
    "must be a branch, a tag or a commit: letters, digits, '.', '_', '/' and '-', such as main",
)
HUB_URL = Form(
    r"^https?://[^@?#]+$",
    "must be a URL that starts with https:// or http:// and contains no user or password (no '@'), no '?' and no '#', "
    "such as https://hf-mirror.com; provide a token with credentials",
)
SHA256 = Form(r"^[0-9a-f]{64}$", "must be a SHA-256: 64 hexadecimal digits in lower case, as `sha256sum` prints it")
FUNCTION_NAME = Form(
    r"^[A-Za-z_][A-Za-z0-9_]*$",
    "must be the name of a Python function: letters, digits and '_', not starting with a digit, such as compute_score",
)
METRIC_NAME = Form(
    r"^[A-Za-z_][A-Za-z0-9_./-]*$",
    "must be the name of a metric: letters, digits, '_', '.', '/' and '-', starting with a letter or '_', such as acc",
)
RELEASE = Form(r"^[0-9]+\.[0-9]+\.[0-9]+$", "must be a release of three numbers, such as 2.60.0")
PINNED_WHEEL = Form(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}==[A-Za-z0-9.!+_-]{1,24}( --hash=sha256:[0-9a-f]{64}){1,5}$",
    "must be a release with the hashes of its wheels, as `pip hash` prints them: name==version --hash=sha256:…, with a "
    "name of at most 40 characters and a version of at most 24",
)
REASON_WORD = Form(
    r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    "must be a word of letters, digits, '_', ',' and ':' that starts with a letter, such as StepSeen",
)
HOST_PATH_TYPE = Form(r"^(Directory|File|FileOrCreate)$", "must be Directory, File or FileOrCreate")

FORMS: tuple[Form, ...] = (
    LABEL,
    ABSOLUTE_PATH,
    DECIMAL,
    SIGNED_DECIMAL,
    METRIC,
    QUANTITY,
    VARIABLE_NAME,
    REPOSITORY_URL,
    SERVER_URL,
    HUB_REPOSITORY,
    COMMIT,
    HUB_REPOSITORY,
    HUB_REVISION,
    HUB_URL,
    SHA256,
    FUNCTION_NAME,
    METRIC_NAME,
    RELEASE,
    PINNED_WHEEL,
    REASON_WORD,
    HOST_PATH_TYPE,
)
_MUST = {form.pattern: form.must for form in FORMS}
_KINDS = {
    "model_type": "must be a map of fields, as in {name: value}",
    "model_attributes_type": "must be a map of fields, as in {name: value}",
    "dict_type": "must be a map, as in {name: value}",
    "list_type": "must be a list, as in [value, value]",
    "bool_type": "must be true or false, without quotes",
    "int_type": "must be an integer without quotes, such as 8",
    "int_from_float": "must be an integer, such as 8",
    "string_type": "must be a string; put it in quotes",
}
"""What a manifest has to contain where pydantic names a Python type."""


def problem_text(problem: ErrorDetails) -> str:
    """Return what a value must be, in the words of a manifest."""
    kind = problem["type"]
    if kind == "string_pattern_mismatch":
        return _MUST.get(problem["ctx"]["pattern"], problem["msg"])
    return _KINDS.get(kind, problem["msg"])
