"""Types, bounds, unions, names and keys of lists."""

from corpus.bad import Bad, group, override, template, trainer, volume

DEEP: object = "deep"
for _ in range(60):
    DEEP = [DEEP]

BAD = {
    "no image": Bad({"runtime": {"image": None}}, "spec.runtime.image", "is required and not set"),
    "no model": Bad({"model": None}, "spec.model", "is required and not set"),
    "unknown field": Bad(trainer(stps=1), "spec.trainer.stps", "is not a field of RLJob; did you mean steps?"),
    "a field without its end": Bad(
        trainer(microBatchSize=1), "spec.trainer.microBatchSize", "did you mean microBatchSizePerDevice?"
    ),
    "made-up field": Bad({"qqqq": 1}, "spec.qqqq", "is not a field of RLJob; see `kubectl explain rljob.spec`"),
    "wrong type": Bad(trainer(steps="many"), "spec.trainer.steps", "'many': must be an integer"),
    "digits as text": Bad(trainer(steps="40"), "spec.trainer.steps", "'40': "),
    "half a step": Bad(trainer(steps=1.5), "spec.trainer.steps", "1.5: must be an integer"),
    "number without quotes": Bad(trainer(learningRate=1e-6), "spec.trainer.learningRate", "put it in quotes"),
    "zero nodes": Bad(group({"nodes": 0}), "spec.workerGroups[0].nodes", "0: Input should be greater than or equal"),
    "negative steps": Bad(trainer(steps=-1), "spec.trainer.steps", "-1: "),
    "steps beyond bounds": Bad(trainer(steps=2**31), "spec.trainer.steps", "2147483648: "),
    "no worker group": Bad({"workerGroups": []}, "spec.workerGroups", "at least 1 item"),
    "two worker groups": Bad(
        {"workerGroups": [{"name": "a", "devicesPerNode": 2}, {"name": "b", "devicesPerNode": 2}]},
        "spec.workerGroups",
        "at most 1 item",
    ),
    "unknown accelerator": Bad(
        {"accelerator": {"class": "h100"}}, "spec.accelerator.class", "class h100 does not exist; classes are"
    ),
    "relative path": Bad({"reward": {"path": "reward.py"}}, "spec.reward.path", "'reward.py': must be an absolute"),
    "model of a hub": Bad(
        {"model": {"path": "Qwen/Qwen3-8B"}}, "spec.model.path", "an initializer can download a model of a hub"
    ),
    "path that is too long": Bad({"model": {"path": "/" + "x" * 1024}}, "spec.model.path", "at most 1024 characters"),
    "number as text": Bad(
        trainer(learningRate="fast"), "spec.trainer.learningRate", "'fast': must be a decimal number"
    ),
    "quantity of nothing": Bad(
        template({"memory": "9GB"}), "spec.workerGroups[0].template.memory", "such as 500m, 8 or 12Gi"
    ),
    "quantity in lower case": Bad(
        template({"memory": "8gi"}), "spec.workerGroups[0].template.memory", "(case matters), such as 500m"
    ),
    "variable that begins with a digit": Bad(
        template({"env": [{"name": "1A", "value": "x"}]}),
        "spec.workerGroups[0].template.env[0].name",
        "must be the name of an environment variable",
    ),
    "a null": Bad({"data": {"train": ["/data/a.parquet", None]}}, "spec.data.train[1]", "is null; remove the field"),
    "empty command": Bad(
        {"initializers": [{"name": "a", "command": []}]}, "spec.initializers[0].command", "at least 1"
    ),
    "code without source": Bad({"code": {"type": "ConfigMap"}}, "spec.code", "set both or neither"),
    "source without type": Bad({"code": {"configMap": {"name": "code"}}}, "spec.code", "set both or neither"),
    "a branch of Git": Bad(
        {"code": {"type": "Git", "git": {"url": "https://example.com/x.git", "revision": "main"}}},
        "spec.code.git.revision",
        "'main': must be a full commit hash",
    ),
    "volume without source": Bad(
        template({"volumes": [{"name": "data"}]}),
        "spec.workerGroups[0].template.volumes[0]",
        "has none; set exactly one of persistentVolumeClaim, configMap",
    ),
    "volume of two sources": Bad(
        template(volume(persistentVolumeClaim={"claimName": "data"}, emptyDir={})),
        "spec.workerGroups[0].template.volumes[0]",
        "has persistentVolumeClaim and emptyDir; set exactly one",
    ),
    "variable of two minds": Bad(
        template({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        "spec.workerGroups[0].template.env[0]",
        "has value and valueFrom; set at most one of them",
    ),
    "rule without trigger": Bad(
        {"restart": {"rules": [{"name": "a", "action": "Fail"}]}},
        "spec.restart.rules[0]",
        "has none; set exactly one of onExitCodes, onLogPattern",
    ),
    "same initializer": Bad(
        {"initializers": [{"name": "a", "command": ["a"]}, {"name": "a", "command": ["b"]}]},
        "spec.initializers[1].name",
        "a is used twice; rename one",
    ),
    "same variable": Bad(
        template({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        "spec.workerGroups[0].template.env[1].name",
        "A is used twice; rename one",
    ),
    "same volume": Bad(
        template({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}),
        "spec.workerGroups[0].template.volumes[1].name",
        "a is used twice; rename one",
    ),
    "same stop rule": Bad(
        {"stopRules": [{"name": "a", "metric": "x", "condition": "IsNaN"}] * 2},
        "spec.stopRules[1].name",
        "a is used twice; rename one",
    ),
    "unset of nothing": Bad({"unset": ["trainer.stps"]}, "spec.unset[0]", "trainer has no field stps"),
    "unset of a number": Bad({"unset": [5]}, "spec.unset[0]", "5: must be a string; put it in quotes"),
    "a recipe that is not there": Bad({"recipeRef": {"name": "absent"}}, "spec.recipeRef", "does not exist"),
    "too deep": Bad(
        {"model": {"path": DEEP}},
        "spec.model.path",
        "is nested deeper than 40 levels",
    ),
    "a text that is too deep": Bad(override(a=DEEP), "spec.verl.overrides", "nested deeper than 32 levels"),
    "a map in place of a text": Bad(
        {"verl": {"overrides": [{"a": 1}]}}, "spec.verl.overrides", "must be text in YAML or JSON: write `overrides: |`"
    ),
    "a text that is no map": Bad({"verl": {"overrides": "- a"}}, "spec.verl.overrides", "must be a map, with lines"),
    "a text that is no YAML": Bad(
        {"model": {"config": '{"a": '}}, "spec.model.config", "not YAML: line 2, column 1: did not find expected"
    ),
    "a text with an alias": Bad(
        template({"affinity": "a: &x {}\nb: *x"}),
        "spec.workerGroups[0].template.affinity",
        "line 1, column 4: anchors (&) and aliases (*) are not allowed",
    ),
    "a long text": Bad(
        {"podSpecPatch": {"head": "a" * 8193}}, "spec.podSpecPatch.head", "8193 bytes; at most 8192 are allowed"
    ),
}
