"""Replaces PyTorch. Dynamo's worker imports it, but does not call it for a text model without a GPU.

Each attribute is an empty class, and each submodule contains such classes.
"""
import submodules


class _Empty(type):
    """A class whose attributes are empty classes, such as torch.nn.Module."""

    def __getattr__(cls, name):
        return _attribute(name)


def _attribute(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Empty(name, (), {})


__getattr__ = _attribute
submodules.add(__name__, _attribute)
