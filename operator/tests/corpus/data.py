"""Data files and prompts."""

from corpus.bad import Bad, override

BAD = {
    "prompts as CSV": Bad(
        {"data": {"train": ["/d/a.parquet", "/d/train.csv"]}},
        "spec.data.train[1]",
        "/d/train.csv ends with none of .parquet, .json, .jsonl, and verl 0.9.1 reads no other files; convert it, or "
        "set verl.overrides[data.custom_cls.path]",
    ),
    "a suffix in capitals": Bad(
        {"data": {"validation": ["/d/v.PARQUET"]}}, "spec.data.validation[0]", "ends with none"
    ),
    "a folder": Bad({"data": {"train": ["/d/train.parquet/"]}}, "spec.data.train[0]", "ends with none of"),
    "a class of no file": Bad(
        {"data": {"train": ["/d/a.csv"]}} | override(data__custom_cls={"path": None, "name": "A"}),
        "spec.data.train[0]",
        "convert it",
    ),
    "a class of no path": Bad(
        {"data": {"train": ["/d/a.csv"]}} | override(data__custom_cls__path=None), "spec.data.train[0]", "convert it"
    ),
    "a reward that is nowhere": Bad(
        {"reward": {"path": None}}, "spec.reward", "has none; set exactly one of path, builtin"
    ),
    "a reward of two minds": Bad(
        {"reward": {"builtin": "GSM8K"}}, "spec.reward", "has path and builtin; set exactly one of path, builtin"
    ),
    "a reward that the runtime has not": Bad(
        {"reward": {"path": None, "builtin": "AIME"}}, "spec.reward.builtin", "'AIME': "
    ),
    "a function of a built-in reward": Bad(
        {"reward": {"path": None, "builtin": "MATH", "function": "score"}},
        "spec.reward.function",
        "score is a function of reward.path, and builtin MATH has one function only; remove it",
    ),
    "another key of verl for long prompts": Bad(
        override(data__truncation="left"), "spec.verl.overrides[data.truncation]", "data.overlong"
    ),
}
