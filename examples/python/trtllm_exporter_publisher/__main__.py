"""Runs a Python server and publishes copies of the statistics that it reads. The server needs no change.

  python3 -m trtllm_exporter_publisher MODULE [ARGUMENT...]      instead of  python3 -m MODULE [ARGUMENT...]

Environment:
  TRTLLM_EXPORTER_SOCKET         ingest socket of the exporter; empty publishes nothing [/run/trtllm-exporter/ingest.sock]
  TRTLLM_EXPORTER_MODEL          label `model` of the engine [the last part of the model's name or folder]
  TRTLLM_EXPORTER_MODEL_VERSION  label `version`, with TRTLLM_EXPORTER_MODEL [1]
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import multiprocessing.spawn
import os
import runpy
import sys
from types import ModuleType
from typing import Any, Callable, Sequence

from .copies import copying
from .publisher import DEFAULT_SOCKET

_log = logging.getLogger(__name__)
MAIN = "TRTLLM_EXPORTER_MAIN"  # variable that tells a spawned child the main module of its parent


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(0 if sys.argv[1:2] == ["--help"] else 2)
    copy_each_llm()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def copy_each_llm() -> None:
    """Publishes copies for each LLM in this process, and in the children that `multiprocessing` spawns, because a
    server may create its LLM in a child."""
    if not os.environ.get("TRTLLM_EXPORTER_SOCKET", DEFAULT_SOCKET):
        return
    sys.meta_path.insert(0, _WhenImported("tensorrt_llm", _copy_each_of))
    prepared = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepared)
    def prepare(name: str) -> dict[str, Any]:
        data = dict(prepared(name))
        # A child imports the main module first. Replace that module with `child`, which calls `copy_each_llm` and then
        # imports the original main module.
        os.environ[MAIN] = data.get("init_main_from_name") or ""
        data["init_main_from_name"] = f"{__package__}.child"
        return data

    multiprocessing.spawn.get_preparation_data = prepare


def _copy_each_of(tensorrt_llm: Any) -> None:
    """Makes each new LLM publish copies of its statistics until the process ends."""
    # All kinds of LLM inherit from the class that defines generate_async: AutoDeploy's, and that of the TensorRT backend.
    base = next((kind for kind in tensorrt_llm.LLM.__mro__ if "generate_async" in vars(kind)), tensorrt_llm.LLM)
    created = base.__init__

    @functools.wraps(created)
    def create(self: Any, *arguments: Any, **named: Any) -> None:
        created(self, *arguments, **named)
        if any(kind.__name__ == "MultimodalEncoder" for kind in type(self).__mro__):
            return  # it makes no tokens, and has no iterations
        try:
            copying(self, os.environ.get("TRTLLM_EXPORTER_SOCKET", DEFAULT_SOCKET),
                    os.environ.get("TRTLLM_EXPORTER_MODEL") or None,
                    os.environ.get("TRTLLM_EXPORTER_MODEL_VERSION") or "1").__enter__()
        except Exception as error:  # the server must not fail because of its copies
            _log.warning("cannot copy the engine's statistics: %r", error)

    base.__init__ = create


class _WhenImported(importlib.abc.MetaPathFinder):
    """Calls `then` with the module `name` once it is imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, _path: Sequence[str] | None,
                  _target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            executed = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                executed(module)
                self._then(module)

            setattr(spec.loader, "exec_module", exec_module)
        return spec


if __name__ == "__main__":
    main()
