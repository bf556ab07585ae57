"""llama.cpp's own server in a process of its own, open on loopback: ``python llama_server.py MODEL.gguf PORT``."""

from __future__ import annotations

import sys
import threading
from typing import Any

import xllamacpp

SLOTS, CONTEXT = 8, 4096


def main(weights: str, port: int) -> None:
    p: Any = xllamacpp.CommonParams()
    p.model.path = weights
    p.hostnames = ["127.0.0.1"]
    p.port = port
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.n_parallel = SLOTS
    p.n_ctx = SLOTS * CONTEXT
    p.ctx_shift = False
    p.fit_params = False
    p.n_threads_http = 2 * SLOTS + 4
    p.endpoint_slots = p.endpoint_metrics = p.endpoint_props = True
    p.ui = False
    p.verbosity = -1
    server = xllamacpp.Server(p)
    sys.stdout.write(f"{server.listening_address}\n")
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
