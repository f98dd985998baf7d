"""Stands in for PyTorch, which Dynamo's worker imports and a text model without a GPU does not call.

Each attribute is an empty class, and each submodule is a module of them.
"""
import submodules


class _Empty(type):
    """A class whose attributes are empty classes: torch.nn.Module."""

    def __getattr__(cls, name):
        return _attribute(name)


def _attribute(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Empty(name, (), {})


__getattr__ = _attribute
submodules.add(__name__, _attribute)
