"""Runs a Python module, and lets the exporter's Python package read the statistics of its LLM. docs/kubernetes.md warns
against this if the server reads the statistics itself, and recommends it if the server does not."""
import os
import runpy
import sys

import tensorrt_llm
from trtllm_exporter_publisher import publishing

created = tensorrt_llm.LLM.__init__


def create(self, *arguments, **named):
    created(self, *arguments, **named)
    publishing(self, os.environ["TRTLLM_EXPORTER_SOCKET"]).__enter__()


tensorrt_llm.LLM.__init__ = create
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
