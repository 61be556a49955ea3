"""Plain scalars and small documents whose meaning differs between dialects of YAML, with kubectl's result."""

from __future__ import annotations

SCALARS: dict[str, object] = {
    "1e-6": 1e-6, "1E3": 1000, "1.0": 1, "1.": 1, ".5": 0.5, "+.5e1": 5, "-0.0": 0, "1e400": "1e400", "1e21": 1e21,
    "1e20": 1e20, "9223372036854775807": 2**63 - 1, "9223372036854775808": 2.0**63, "-9223372036854775808": -(2**63),
    "99999999999999999999999": 1e23, "on": True, "Off": False, "yes": True, "No": False, "y": True, "N": False,
    "true": True, "TRUE": True, "tRUE": "tRUE", "oN": "oN", "010": 8, "-010": -8, "0o10": 8, "0O17": 15, "08": 8,
    "0755": 493, "0x1F": 31, "-0xf": -15, "0b101": 5, "0b2": "0b2", "0x": "0x", "1_000": 1000, "1__0": 10, "_1": "_1",
    "1_0.5": 10.5, "0x_1F": 31, "1:30": "1:30", "190:20:30": "190:20:30", "2001-12-14": "2001-12-14",
    "2001-12-14T21:59:43Z": "2001-12-14T21:59:43Z", "~": None, "null": None, "Null": None, "nULL": "nULL", "": None,
    "1.2.3": "1.2.3", "12Gi": "12Gi", "+1": 1, "+": "+", "0": 0, "00": 0, "-0": 0, "1e": "1e", "e1": "e1",
    ".": ".", "..": "..", "1,000": "1,000", "=": "=", "0.1e-2": 0.001, "1e+3": 1000, "infinity": "infinity",
    "NaN": "NaN", "0x1p4": "0x1p4", "1e6_0": 1e60, "._5": "._5", '"1e-6"': "1e-6", "'on'": "on", "!!str 5": "5",
    '!!int "5"': 5, "!!float 5": 5,
}  # fmt: skip
DOCUMENTS: dict[str, object] = {
    "{1: a, true: b, on2: c}": {"1": "a", "true": "b", "on2": "c"},
    "{y: 1, n: 2}": {"true": 1, "false": 2},
    "{0o10: a}": {"8": "a"},
    "{a: &x {b: 1, c: 2}, d: {<<: *x, c: 3}}": {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}},
    "{a: &z {b: 1}, d: {b: 2, <<: *z}}": {"a": {"b": 1}, "d": {"b": 1}},
    "{a: &p {b: 1}, e: &q {b: 2, c: 3}, d: {<<: [*p, *q]}}": {
        "a": {"b": 1}, "e": {"b": 2, "c": 3}, "d": {"b": 1, "c": 3},
    },
    "{a: &r [1, 2], b: *r}": {"a": [1, 2], "b": [1, 2]},
    '{a: [on, "on", 010, "010"]}': {"a": [True, "on", 8, "010"]},
}  # fmt: skip
REFUSED = (
    ".nan", ".inf", "-.INF",
    '"\\ud800"', "!!int x", "!!bool 5", "{[1]: a}", "{~: a}", "&x [*x]", "&x {a: *x}", "{<<: 5}", "{<<: [5]}",
)  # fmt: skip
"""Rejected by both."""
STRICTER = (
    "{a: 1, a: 2}",
    "{1: a, '1': b}",
    "{1.5: a}",
    "!!timestamp 2001-12-14",
    "!mine x",
    "!!binary aGk=",
    "[&x 1, &x 2]",
)
"""Rejected by rljob and accepted by kubectl, because they are always mistakes."""
