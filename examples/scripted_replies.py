"""Replies for ``--policy scripted:FILE``: what three made-up models reply, for trying things out
without an engine.

right.json    calls the calculator and answers 23
broken.json   writes a call that is not valid JSON, then answers
lost.json     never replies: the engine times out
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rollbook import load_renderer

END = 2  # <|im_end|> in the tokenizer of the default model
GOOD = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "52-29"}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "calculator", "arguments": {"expression": 52-29}}\n</tool_call>'
ANSWER = "The answer is 23."
SCRIPTS = {"right.json": (GOOD, ANSWER), "broken.json": (BAD, ANSWER)}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    renderer = load_renderer("local")
    for name, texts in SCRIPTS.items():
        replies = []
        for text in texts:
            ids = [*renderer.encode(text).tolist(), END]
            replies.append({"type": "reply", "token_ids": ids, "logprobs": [-0.5] * len(ids)})
        (folder / name).write_text(json.dumps({"replies": replies}))
    lost = [{"type": "failure", "reason": "engine_timeout", "detail": "as scripted"}]
    (folder / "lost.json").write_text(json.dumps({"replies": lost}))
    print(f"{folder}: {', '.join([*SCRIPTS, 'lost.json'])}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "scripts"))
