"""Types, bounds, unions, names and keys of lists."""

from typing import Any

from builders import Json, merged

from corpus.bad import Bad, group, override, saved, template, trainer, volume

DEEP: object = "deep"
for _ in range(60):
    DEEP = [DEEP]


def initializer(**change: Any) -> Json:  # noqa: ANN401 - JSON
    """Download a model to a volume, changed as the keywords say; None removes a field."""
    download = {"name": "a", "type": "Model", "download": {"repository": "Qwen/Qwen3-8B", "to": "/data/model"}}
    return saved() | {"initializers": [merged(download, change)]}


def download(**change: Any) -> Json:  # noqa: ANN401 - JSON
    """Change the section of it."""
    return initializer(download=change)


def conversion(**change: Any) -> Json:  # noqa: ANN401 - JSON
    """Convert weights from one folder of a volume to another."""
    folders = {"from": "/data/fp8", "to": "/data/bf16"}
    return saved() | {"initializers": [{"name": "a", "type": "Conversion", "conversion": folders | change}]}


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
    "three worker groups": Bad(
        {"workerGroups": [{"name": name, "devicesPerNode": 2} for name in "abc"]},
        "spec.workerGroups",
        "at most 2 item",
    ),
    "no role": Bad(group({"roles": []}), "spec.workerGroups[0].roles", "at least 1 item"),
    "a role that no group has": Bad(group({"roles": ["Critic"]}), "spec.workerGroups[0].roles[0]", "'Critic'"),
    "unknown accelerator": Bad(
        {"accelerator": {"class": "h100"}}, "spec.accelerator.class", "class h100 does not exist; classes are"
    ),
    "relative path": Bad({"reward": {"path": "reward.py"}}, "spec.reward.path", "'reward.py': must be an absolute"),
    "model of a hub": Bad(
        {"model": {"path": "Qwen/Qwen3-8B"}}, "spec.model.path", "type Model downloads a model of a hub"
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
        {"initializers": [{"name": "a", "command": []}]},
        "spec.initializers[0].command",
        "is required with type Command",
    ),
    "a command that downloads": Bad(
        initializer(command=["true"]), "spec.initializers[0].command", "is not read with type Model"
    ),
    "a model without its section": Bad(
        {"initializers": [{"name": "a", "type": "Model"}]},
        "spec.initializers[0].download",
        "is required with type Model",
    ),
    "a download that names what it creates": Bad(
        initializer(creates="/data/model"), "spec.initializers[0].creates", "is for type Command; type Model finds out"
    ),
    "a model of no repository": Bad(
        download(repository=None), "spec.initializers[0].download.repository", "is required with source HuggingFace"
    ),
    "a repository that is a path": Bad(
        download(repository="/data/model"), "spec.initializers[0].download.repository", "owner, '/' and name"
    ),
    "a mirror with a password": Bad(
        download(endpoint="https://me:secret@mirror.example"),
        "spec.initializers[0].download.endpoint",
        "no user or password",
    ),
    "a hub with a folder": Bad(
        download(path="/nfs/model"), "spec.initializers[0].download.path", "requires source Path, not HuggingFace"
    ),
    "a folder with a revision": Bad(
        download(source="Path", path="/data/raw", repository=None, revision="main"),
        "spec.initializers[0].download.revision",
        "is for a hub, and source is Path; remove it",
    ),
    "a claim that is missing": Bad(
        download(source="PVC", repository=None), "spec.initializers[0].download.claim", "is required with source PVC"
    ),
    "a data set that nobody knows": Bad(
        {"initializers": [{"name": "a", "type": "Dataset", "download": {"dataset": "MMLU", "to": "/data/mmlu"}}]},
        "spec.initializers[0].download.dataset",
        "'MMLU': ",
    ),
    "a model that is a data set": Bad(
        download(dataset="GSM8K"), "spec.initializers[0].download.dataset", "requires type Dataset, not Model"
    ),
    "a data set of a hub as a file": Bad(
        {"data": {"train": ["openai/gsm8k"]}},
        "spec.data.train[0]",
        "'openai/gsm8k': must be an absolute path inside the pods, such as /data/train.parquet; an initializer of type "
        "Dataset downloads a data set of a hub and writes such files",
    ),
    "a data set without its name": Bad(
        initializer(type="Dataset"),
        "spec.initializers[0].download.dataset",
        "is required with type Dataset; the names are GSM8K, ",
    ),
    "a part of a data set": Bad(
        initializer(type="Dataset", download={"dataset": "GSM8K", "include": ["train*"]}),
        "spec.initializers[0].download.include",
        "is for type Model; the files of GSM8K are known",
    ),
    "a download into the image": Bad(
        download(to="/models/qwen"),
        "spec.initializers[0].download.to",
        "/models/qwen is on no volume and would be lost",
    ),
    "a conversion onto itself": Bad(
        conversion(to="/data/fp8"), "spec.initializers[0].conversion.to", "is the folder that is converted"
    ),
    "a step of weights": Bad(
        conversion(step=4), "spec.initializers[0].conversion.step", "requires format Checkpoint, not FP8ToBF16"
    ),
    "a checkpoint in parts": Bad(
        conversion(format="Checkpoint", pods=2),
        "spec.initializers[0].conversion.pods",
        "one process merges a checkpoint, so remove it",
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
