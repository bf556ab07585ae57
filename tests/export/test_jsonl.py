import io
import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.export import export
from rollbook.export.jsonl import open_writer
from rollbook.trace import TurnReward, samples
from tests.export.build import batch, end, sound, start, turn


def row_of(sample: object) -> dict:
    file = io.BytesIO()
    writer = open_writer(file)
    writer.write(sample)
    writer.finish()
    (line,) = file.getvalue().splitlines()
    assert line.isascii()
    return json.loads(line)


def test_a_line_holds_the_sample(tmp_path: Path) -> None:
    trace = turn(turn(start("r"), (5, 6), version=3), (7,), version=None)
    trace.score(0.5, {"right": 0.5}, (TurnReward(1, 0.25),))
    report = export(batch([end(trace, reward=None)]), "jsonl", tmp_path / "out.jsonl", advantages={"r": -0.5})
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert report.samples == 1
    sampling = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": None,
        "max_tokens": None,
        "stop": [],
        "stop_token_ids": [],
        "grammar": None,
    }
    assert json.loads(line) == {
        "run": "run",
        "group": "g0",
        "episode": "",
        "rollout": "r",
        "branch": 0,
        "is_last_branch": True,
        "prompt_len": 4,
        "reward": 0.5,
        "reward_parts": {"right": 0.5},
        "turn_rewards": [[0, 0.25]],
        "advantage": -0.5,
        "rollout_trained": 3,
        "weight": 1.0,
        "ending_kind": "submitted",
        "ending_reason": "final_answer",
        "truncated": False,
        "min_version": 3,
        "max_version": 3,
        "logprob_kinds": ["raw"],
        "logprobs_fit": True,
        "samplings": [sampling],
        "token_ids": [0, 1, 2, 99, 5, 6, 99, 7],
        "sampled": [0, 0, 0, 0, 1, 1, 0, 1],
        "loss_mask": [0, 0, 0, 0, 1, 1, 0, 1],
        "logprobs": [None, None, None, None, -0.25, -0.25, None, -0.25],
        "policy_version": [-1, -1, -1, -1, 3, 3, -1, -1],
        "turn_id": [-1, -1, -1, -1, 0, 0, -1, 1],
        "advantages": None,
    }


def test_an_absent_reward_is_null() -> None:
    (sample,) = samples(sound(reward=None))
    assert (row_of(sample)["reward"], row_of(sample)["advantage"]) == (None, None)


@given(st.lists(st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_logprob_comes_back_bit_for_bit(values: list[float]) -> None:
    kept = np.array(values, np.float32)
    (sample,) = samples(end(turn(start(), range(len(values)), logprobs=values)))
    read = np.array(row_of(sample)["logprobs"][4:], np.float32)
    assert read.view(np.uint32).tolist() == kept.view(np.uint32).tolist()


def test_a_logprob_is_spelled_with_the_fewest_digits() -> None:
    (sample,) = samples(end(turn(start(), (1,), logprobs=(-0.1,))))
    file = io.BytesIO()
    open_writer(file).write(sample)
    assert b'"logprobs":[null,null,null,null,-0.1]' in file.getvalue()


def test_a_lone_surrogate_in_an_id_is_escaped(tmp_path: Path) -> None:
    export(batch([sound("a\ud800b")]), "jsonl", tmp_path / "out")
    assert json.loads((tmp_path / "out").read_bytes())["rollout"] == "a\ud800b"
