"""Makes every submodule of a stand-in package importable, whatever its name."""
import importlib.abc
import importlib.machinery
import sys
import types


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder for imports. Each submodule of `package` has the attributes that `attribute` returns for their names."""

    def __init__(self, package, attribute):
        self._prefix, self._attribute = package + ".", attribute

    def find_spec(self, name, _path, _target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(self._prefix) else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = self._attribute
        return module

    def exec_module(self, module):
        pass


def add(package, attribute):
    sys.meta_path.append(Submodules(package, attribute))
