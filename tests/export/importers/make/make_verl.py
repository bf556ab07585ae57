"""``verl.jsonl``: rows that verl's own function wrote. Run as ``make_verl.py VERL_CHECKOUT OUT``, with numpy."""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

source = Path(sys.argv[1], "verl/trainer/ppo/v1/trainer_base.py").read_text()
(write,) = [
    node
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.FunctionDef) and node.name == "_write_generations"
]
write.decorator_list.clear()
names: dict[str, object] = {"os": os, "json": json, "np": np}
exec(compile(ast.Module([write], []), "verl", "exec"), names)
with tempfile.TemporaryDirectory() as folder:
    names["_write_generations"](
        ["user\nWhat is 1 + 2?\nassistant\n"] * 2 + ["user\nWhat is 2 + 2?\nassistant\n"] * 2,
        ["3", "It is 4.", "4", "5"],
        ["3", "3", "4", "4"],
        [1.0, 0.0, 1.0, 0.0],
        {"uid": ["a_0_0", "a_1_0", "b_0_0", "b_1_0"], "acc": np.array([True, False, True, False])},
        folder,
        12,
    )
    Path(sys.argv[2]).write_bytes(Path(folder, "12.jsonl").read_bytes())
