"""Finds functions and classes in source files. Nothing of the files is executed.

A name is followed through `from ... import` to the file that defines it, and a method through the base classes. What a
module defines only at run time is not found.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path

from rljob_runtime.image_check.facts import SeamFacts

SOURCE_BYTES_MAX = 4 * 1024**2
"""The largest file that is parsed. The largest of vLLM 0.23.0 (v1/worker/gpu_model_runner.py) has 327 KiB."""
HOPS_MAX = 8
"""Imports and base classes that are followed for one name."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotFoundInSourceError(LookupError):
    """A module or a name is missing; the message says which."""


class Sources:
    """Parsed modules of an image."""

    def __init__(self, path: Sequence[str] | None = None) -> None:
        """Search the folders of `path`, or those of this interpreter."""
        self._path = path
        self._trees: dict[str, ast.Module] = {}

    def find(self, module: str, attribute: str) -> SeamFacts:
        """Return what defines `attribute`, which may be `Class.method`, or `Class.name` for any other member."""
        try:
            node = self._resolve(module, attribute, HOPS_MAX)
        except NotFoundInSourceError as error:
            return SeamFacts(found=False, problem=str(error))
        return SeamFacts(found=True, parameters=_parameters(node) if isinstance(node, _Function) else None)

    def has_package(self, name: str) -> bool:
        """Return whether a top package is there."""
        return self._top(name) is not None

    def _resolve(self, module: str, attribute: str, hops: int) -> ast.AST:
        name, _, method = attribute.partition(".")
        place, node = self._definition(module, name, hops)
        if not method:
            return node
        if not isinstance(node, ast.ClassDef):
            raise NotFoundInSourceError(f"{module} defines {name}, but not as a class")
        found = self._member(place, node, method, hops)
        if found is None:
            raise NotFoundInSourceError(f"{name} of {module} has no {method}")
        return found

    def _definition(self, module: str, name: str, hops: int) -> tuple[str, ast.AST]:
        """Return the module that defines a name, and its definition there. The last one counts."""
        if hops <= 0:
            raise NotFoundInSourceError(f"{module} imports {name} through more than {HOPS_MAX} modules")
        for node in reversed(_statements(self._tree(module).body)):
            if isinstance(node, _Function | ast.ClassDef) and node.name == name:
                return module, node
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
                return module, node
            if isinstance(node, ast.Import) and name in {_bound(alias) for alias in node.names}:
                return module, node
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if _bound(alias) == name:
                        return self._definition(self._imported(module, node), alias.name, hops - 1)
        if self._spec(f"{module}.{name}") is not None:
            return module, ast.Module([], [])
        raise NotFoundInSourceError(f"{module} has no {name}")

    def _member(self, module: str, node: ast.ClassDef, name: str, hops: int) -> ast.AST | None:
        """Return a method, an attribute of the class, or the assignment of an attribute of its objects."""
        parts = _statements(node.body)
        for part in reversed(parts):
            if isinstance(part, _Function) and part.name == name:
                return part
            if isinstance(part, ast.Assign | ast.AnnAssign) and name in _targets(part):
                return part
        for part in parts:
            if isinstance(part, _Function) and (assignment := _assignment_of_self(part, name)):
                return assignment
        for base in node.bases:
            if hops <= 0 or not isinstance(base, ast.Name):
                continue
            try:
                place, parent = self._definition(module, base.id, hops - 1)
            except NotFoundInSourceError:
                continue  # such as a class of another package
            if isinstance(parent, ast.ClassDef) and (found := self._member(place, parent, name, hops - 1)):
                return found
        return None

    def _imported(self, module: str, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that an import names."""
        if not node.level:
            return node.module or ""
        spec = self._spec(module)
        is_package = spec is not None and spec.submodule_search_locations is not None
        parents = module.split(".")
        kept = parents[: len(parents) - node.level + is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            self._trees[module] = self._parse(module)
        return self._trees[module]

    def _parse(self, module: str) -> ast.Module:
        spec = self._spec(module)
        if spec is None:
            raise NotFoundInSourceError(f"there is no module {module}")
        if spec.origin is None or not spec.origin.endswith(".py"):
            raise NotFoundInSourceError(f"the module {module} has no source file")
        try:
            with Path(spec.origin).open("rb") as file:
                text = file.read(SOURCE_BYTES_MAX + 1)
            if len(text) > SOURCE_BYTES_MAX:
                raise NotFoundInSourceError(f"the source of {module} is larger than {SOURCE_BYTES_MAX} bytes")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in strings of others
                return ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise NotFoundInSourceError(f"the source of {module} cannot be read: {error}") from error

    def _spec(self, module: str) -> importlib.machinery.ModuleSpec | None:
        """Find a module as an import would. Parents are searched, not imported as by `importlib.util.find_spec`."""
        names = module.split(".")
        spec = self._top(names[0])
        for depth in range(2, len(names) + 1):
            if spec is None or spec.submodule_search_locations is None:
                return None
            folders = list(spec.submodule_search_locations)
            # By its last name alone: with its full name, a folder without __init__.py asks for its imported parent.
            spec = importlib.machinery.PathFinder.find_spec(names[depth - 1], folders)
        return spec

    def _top(self, name: str) -> importlib.machinery.ModuleSpec | None:
        if self._path is not None:
            return importlib.machinery.PathFinder.find_spec(name, list(self._path))
        try:
            # Also asks the finders of editable installations, which the path does not show. Imports nothing.
            return importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with those inside `if`, `try` and `with`, where upstream defines alternatives."""
    found: list[ast.stmt] = []
    for node in body:
        found.append(node)
        if isinstance(node, ast.If):
            found += _statements(node.body) + _statements(node.orelse)
        elif isinstance(node, ast.Try):
            found += _statements(node.body) + _statements(node.orelse)
            found += [part for handler in node.handlers for part in _statements(handler.body)]
        elif isinstance(node, ast.With):
            found += _statements(node.body)
    return found


def _bound(alias: ast.alias) -> str:
    """Return the name that an import gives to what it imports."""
    return alias.asname or alias.name.partition(".")[0]


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _assignment_of_self(method: _Function, name: str) -> ast.AST | None:
    """Return where a method assigns an attribute of its object."""
    if not method.args.args:
        return None
    own = method.args.args[0].arg
    stores = (node for node in ast.walk(method) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return next(
        (node for node in stores if node.attr == name and isinstance(node.value, ast.Name) and node.value.id == own),
        None,
    )


def _parameters(node: _Function) -> tuple[str, ...]:
    """Return the names in the order of `inspect.signature`."""
    known = node.args
    names = [*known.posonlyargs, *known.args, *([known.vararg] if known.vararg else []), *known.kwonlyargs]
    return tuple(argument.arg for argument in [*names, *([known.kwarg] if known.kwarg else [])])
