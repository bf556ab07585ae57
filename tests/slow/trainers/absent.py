"""Stand-ins for what a trainer's modules import at their top and the functions under test never call: engines and
distributed training for CUDA. A module that is stood in for gives an empty class for any name, so that a call that
would need the real thing fails; what a function does need is set by name.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["stand_in"]


class _Empty(ModuleType):
    """A package that has every name, each an empty class."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in(*packages: str, needed: Mapping[str, Any] | None = None) -> None:
    """Let these packages be imported; `needed`: values by full name, e.g. ``megatron.core.mpu``."""
    sys.meta_path.append(_Finder(packages))
    for name, value in (needed or {}).items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, value)
