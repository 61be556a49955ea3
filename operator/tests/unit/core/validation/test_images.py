"""Image references: the verdicts are those of ParseNormalizedNamed of distribution/reference v0.6.0."""

import pytest
from builders import small_spec, validate

from rljob.core.validation.images import image_problem

A64 = "a" * 64


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x:1",
        "registry.example/team/runtime:1.0",
        "UPPER/x:tag",
        "localhost/x",
        "host:5000/x",
        "[::1]:5000/x",
        "a.b_c/x",
        f"x@sha256:{A64}",
        f"x:1@sha512:{'0' * 128}",
        "x__y-z.w/v",
        "b" * 247,
        f"registry.example/{'b' * 255}",
        "x:" + "T" * 128,
    ],
)
def test_what_a_node_can_pull_is_a_reference(text: str) -> None:
    assert image_problem(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has the name ''"),
        ("UPPER/x:tag with space", "contains white space"),
        (" x", "contains white space"),
        ("x\n", "contains white space"),
        ("Team/X", "has the name 'X'; names are in lower case"),
        ("registry.example/", "has the name ''"),
        ("-.example/x", "has the registry '-.example', which is not HOST[:PORT]"),
        ("https://registry.example/x", "has the registry 'https:', which is not HOST[:PORT]"),
        ("x___y", "has the name 'x___y'; the parts of a name"),
        (A64, "is 64 hexadecimal digits"),
        ("b" * 248, "has a name of 248 characters"),
        ("docker.io/" + "b" * 248, "has a name of 248 characters"),
        (f"registry.example/{'b' * 256}", "has a name of 256 characters"),
        ("x:", "has the tag ''"),
        ("x:.1", "has the tag '.1'"),
        ("x:" + "T" * 129, "has the tag"),
        ("x@", "has the digest ''"),
        ("x@md5:" + "a" * 32, "a digest is sha256, sha384, sha512 and its digits"),
        ("x@sha256:" + "A" * 64, "64 hexadecimal digits in lower case"),
        ("é", "the parts of a name consist of lower-case letters"),
    ],
)
def test_what_no_node_can_pull_is_refused(text: str, problem: str) -> None:
    assert problem in str(image_problem(text))


def test_every_image_of_a_spec_is_checked() -> None:
    change = {
        "runtime": {"image": "A b"},
        "services": [{"name": "s", "image": "A b", "port": 8999}],
        "initializers": [{"name": "i", "command": ["x"], "image": "A b"}, {"name": "j", "command": ["x"]}],
        "podSpecPatch": {"workers": {"containers": [{"name": "ray-worker", "image": "A b"}]}},
    }
    spec = small_spec(change)
    spec["workerGroups"][0]["template"] = {"sidecars": [{"name": "x", "image": "A b"}]}
    fields = {
        each.field
        for each in validate("sums", spec).violations
        if "white space" in each.message or each.field.endswith("image")
    }
    assert {
        "spec.runtime.image",
        "spec.services[0].image",
        "spec.initializers[0].image",
        "spec.workerGroups[0].template.sidecars[0].image",
        "spec.podSpecPatch.workers.containers[0].image",
    } <= fields


def test_a_password_in_an_image_is_not_repeated() -> None:
    spec = small_spec({"runtime": {"image": "https://me:geheim@registry.example/x"}})
    (violation,) = validate("sums", spec).violations
    assert "geheim" not in str(violation)
    assert "is not an image reference" in violation.message
