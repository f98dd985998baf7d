"""Stands in for PyTorch, which Dynamo's worker imports and a text model without a GPU does not call.

Each attribute is an empty class, and each submodule is a module of them.
"""
import importlib.abc
import importlib.machinery
import sys
import types


class _Empty(type):
    """A class whose attributes are empty classes: torch.nn.Module."""

    def __getattr__(cls, name):
        return _attribute(name)


def _attribute(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Empty(name, (), {})


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes `import torch.cuda` work."""

    def find_spec(self, name, _path, _target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("torch.") else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _attribute
        return module

    def exec_module(self, module):
        pass


__getattr__ = _attribute
sys.meta_path.append(_Submodules())
