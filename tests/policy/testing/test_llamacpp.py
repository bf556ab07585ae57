"""llama.cpp's words, without a socket."""

from __future__ import annotations

import math
from typing import Any

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine
from rollbook.policy.testing.model import TinyModel
from rollbook.trace import Sampling
from tests.policy.testing.asking import asked

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 3, "n_predict": 5}


def engine(**shape: Any) -> FakeEngine:
    return FakeEngine(Dialect.LLAMACPP, shape=EngineShape(context_length=64, **{"stop_ids": (99,), **shape}))


def complete(fake: FakeEngine, **body: Any) -> tuple[int, Any]:
    return asked(fake, "/completion", {"prompt": [1, 3], "return_tokens": True, "n_probs": 1, **NEUTRAL, **body})


def test_a_reply_has_tokens_probabilities_and_timings() -> None:
    status, reply = complete(engine())
    assert status == 200
    assert [each["id"] for each in reply["completion_probabilities"]] == reply["tokens"]
    assert (reply["stop_type"], reply["truncated"], reply["tokens_predicted"]) == ("limit", False, 5)
    assert (reply["tokens_evaluated"], reply["timings"]["cache_n"] + reply["timings"]["prompt_n"]) == (2, 2)


def test_tokens_and_probabilities_come_where_they_are_asked_for() -> None:
    _, reply = complete(engine(), return_tokens=False, n_probs=0)
    assert reply["tokens"] == []
    assert "completion_probabilities" not in reply


def test_the_defaults_are_the_servers_and_not_neutral() -> None:
    fake = engine()
    bare = {"prompt": [1, 3], "n_predict": 40, "seed": 3, "return_tokens": True}
    assert asked(fake, "/completion", bare)[1]["tokens"] != complete(fake, n_predict=40)[1]["tokens"]


def test_samplers_that_are_not_listed_do_nothing() -> None:
    fake = engine()
    hot = complete(fake, temperature=0.1, samplers=["top_k"])[1]["tokens"]
    assert hot == complete(fake)[1]["tokens"] == complete(fake, top_k=1, samplers=["temperature"])[1]["tokens"]


def test_probabilities_behind_the_samplers() -> None:
    _, reply = complete(engine(seed=2), post_sampling_probs=True, temperature=0.5, n_probs=64, n_predict=1)
    (entry,) = reply["completion_probabilities"]
    choice = TinyModel(64, 2).choice(3, 0, Sampling(temperature=0.5))
    assert math.isclose(entry["prob"], math.exp(choice.processed[entry["id"]]))
    assert math.isclose(sum(each["prob"] for each in entry["top_probs"]), 1.0)


def test_a_stop_string_takes_the_last_probability_away() -> None:
    fake = FakeEngine(Dialect.LLAMACPP, script=lambda prompt, sampling, session: [5, 6, 7, 8])
    _, reply = complete(fake, stop=["gh"])
    assert (reply["stop_type"], reply["stopping_word"], reply["tokens"]) == ("word", "gh", [5, 6, 7])
    assert len(reply["completion_probabilities"]) == 2


def test_a_script_goes_on_in_pieces() -> None:
    fake = FakeEngine(Dialect.LLAMACPP, script={"s": [[5, 6, 7]]})
    first = asked(fake, "/completion", {"prompt": [1], "n_predict": 2, "return_tokens": True}, session="s")[1]
    body = {"prompt": [1, *first["tokens"]], "n_predict": 2, "return_tokens": True}
    second = asked(fake, "/completion", body, session="s")[1]
    assert (first["tokens"], second["tokens"], second["stop_type"]) == ([5, 6], [7, 2], "eos")


def test_the_context_is_told_and_held() -> None:
    status, reply = complete(engine(), prompt=[1] * 64)
    assert (status, reply["error"]["type"]) == (400, "exceed_context_size_error")
    assert (reply["error"]["n_prompt_tokens"], reply["error"]["n_ctx"]) == (64, 64)
    _, cut = complete(engine(), prompt=[1] * 60, n_predict=-1)
    assert (len(cut["tokens"]), cut["stop_type"], cut["truncated"]) == (4, "limit", True)


def test_greetings() -> None:
    fake = engine(slots=2)
    assert asked(fake, "/props")[1]["default_generation_settings"]["n_ctx"] == 64
    assert asked(fake, "/v1/models")[1]["data"][0]["meta"]["n_vocab"] == 64
    assert [slot["is_processing"] for slot in asked(fake, "/slots")[1]] == [False, False]
    assert asked(fake, "/health")[1] == {"status": "ok"}
    assert complete(fake, prompt="text")[0] == 400
    assert complete(fake, temp=1)[0] == 200
    assert fake.log[-1].ignored == ("temp",)
