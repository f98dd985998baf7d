"""The main module of a spawned child of a server that `python3 -m trtllm_exporter_publisher` runs."""
import os
import runpy

from .__main__ import MAIN, copy_each_llm

copy_each_llm()
_name = os.environ.get(MAIN, "")
if _name and _name != "__main__" and not _name.endswith(".__main__"):  # the same condition as in multiprocessing
    globals().update(runpy.run_module(_name, run_name="__mp_main__", alter_sys=True))
