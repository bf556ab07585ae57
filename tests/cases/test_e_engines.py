"""Engines: what they return beside what was asked, held where it comes in; the whole path from reply to export."""

from __future__ import annotations

import asyncio
import io
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export import export
from rollbook.policy import Completion
from rollbook.policy.experts import experts_in_npy
from rollbook.policy.stopping import finish_of
from rollbook.policy.vllm import Route, VllmPolicy
from rollbook.rollout import LoadedPolicy, RolloutSettings, rollout
from rollbook.rollout.limits import Limits
from rollbook.trace import Finish, LogprobKind, MemorySink, Reason, RolloutFailure, Sampling, Task, Trace, samples
from tests.cases.case import PAD, STOP, Talk, byte_ids, bytes_renderer, report
from tests.policy.held import sampled
from tests.policy.serving import VllmServer, remote, serving

LARGE = [{"id": "m", "max_model_len": 1 << 16}]
ROUTES = pytest.mark.parametrize("route", list(Route))


def server(answer: Callable[[dict[str, Any]], Any], mode: str = "raw") -> VllmServer:
    return VllmServer(answer, mode=mode, models=LARGE)


def ask(engine: VllmServer, prompt: list[int], sampling: Sampling, route: Route | None = None, **config: Any) -> Any:
    """One call."""

    async def main() -> Completion:
        async with serving(engine.handle) as url:
            policy = VllmPolicy(remote(url, **config), route=route)
            await policy.start()
            try:
                return await sampled(policy, np.array(prompt, np.int32), sampling, session="r0")
            finally:
                await policy.close()

    return asyncio.run(main())


def roll(
    engine: VllmServer, sampling: Sampling | None = None, sink: MemorySink | None = None, route: Route | None = None
) -> Trace:
    """One rollout over HTTP."""

    async def main() -> Trace:
        async with serving(engine.handle) as url:
            policy = VllmPolicy(remote(url, stop_ids=frozenset({STOP, PAD})), route=route)
            async with LoadedPolicy(policy, bytes_renderer()) as loaded:
                settings = RolloutSettings(limits=Limits(max_generation=None), sampling=sampling or Sampling())
                return await rollout(Talk, Task(id="t", prompt="go"), loaded, settings=settings, sink=sink)

    return asyncio.run(main())


def broken(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises(RolloutFailure, match=problem) as caught:
        call()
    assert caught.value.reason is Reason.ENGINE_CONTRACT


# A14


@ROUTES
@report("A14")
def test_a_prompt_that_the_engine_made_anew_is_refused(given: dict[str, Any], route: Route) -> None:
    prompt, other = given["client_prompt_ids"], given["engine_prompt_ids"]
    count = {"usage": {"prompt_tokens": len(other)}}
    reply = {"token_ids": [1, 9], "finish_reason": "stop", "prompt_token_ids": other}
    for choice in (reply, reply | count, reply | count | {"prompt_token_ids": None}):
        broken(lambda said=choice: ask(server(lambda body: said), prompt, Sampling(), route), "prompt")
    fine = {**reply, "prompt_token_ids": prompt}
    assert ask(server(lambda body: fine), prompt, Sampling(), route).prompt_ids.tolist() == prompt


@report("A14")
def test_nothing_of_such_a_call_trains(given: dict[str, Any]) -> None:
    ids = [*byte_ids("hi"), STOP]
    reply = {"token_ids": ids, "finish_reason": "stop", "prompt_token_ids": given["engine_prompt_ids"]}
    trace = roll(server(lambda body: reply))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.ENGINE_CONTRACT
    assert "another prompt" in trace.ending.detail
    assert len(samples(trace)) == 0
    assert [call.finish for call in trace.calls] == [Finish.ERROR]


@report("A14")
def test_routing_of_another_prompt_is_refused(given: dict[str, Any]) -> None:
    def packed(rows: int) -> str:
        file = io.BytesIO()
        np.save(file, np.zeros((rows, 2, 4), np.uint8))
        return b64encode(file.getvalue()).decode()

    prompt, rows = given["client_prompt_ids"], given["routing_rows"]
    ids = [1, 9]
    assert experts_in_npy(packed(len(ids)), 2, len(prompt)).shape == (2, 2, 4)
    assert experts_in_npy(packed(len(prompt) + len(ids) - 1), 2, len(prompt)).shape == (2, 2, 4)
    reply = {"token_ids": ids, "finish_reason": "stop", "routed_experts": packed(rows)}
    broken(lambda: ask(server(lambda body: reply), prompt, Sampling()), "of 1 positions for 2 tokens")


# D07


@report("D07")
def test_stop_reasons_are_mapped_where_they_come_in(given: dict[str, Any]) -> None:
    limit, last = given["max_tokens"], 5
    found = [
        finish_of(word, last=9 if word == "stop" else last, tokens=tokens, limit=limit, ends=frozenset({9}))
        for word, tokens in zip(given["raw_stop_reasons"], given["n_output"], strict=True)
    ]
    assert found == [Finish.ABORT, Finish.LENGTH, Finish.LENGTH, Finish.STOP]
    for word in given["raw_stop_reasons"][1:]:
        broken(lambda said=word: finish_of(said, last=last, tokens=44, limit=limit, ends=frozenset({9})), "behind 44")


@ROUTES
@report("D07")
def test_an_abort_is_no_normal_end_over_http(given: dict[str, Any], route: Route) -> None:
    sampling = Sampling(max_tokens=given["max_tokens"])
    begun = {"token_ids": [1] * given["n_output"][0], "finish_reason": "abort"}
    reply = ask(server(lambda body: begun), [1], sampling, route)
    assert (reply.finish, len(reply.token_ids), reply.engine_finish) == (Finish.ABORT, given["n_output"][0], "abort")
    unsaid = {"token_ids": [1] * given["n_output"][2], "finish_reason": None}
    assert ask(server(lambda body: unsaid), [1], sampling, route).finish is Finish.LENGTH
    unsaid["token_ids"] = [1] * 44
    broken(lambda: ask(server(lambda body: unsaid), [1], sampling, route), "behind 44 of 300")


# E04


@ROUTES
@report("E04")
def test_an_id_that_was_trimmed_is_not_made_up_for(given: dict[str, Any], route: Route) -> None:
    ids, values, ends = given["token_ids"], given["logprobs"], given["stop_token_ids"]
    listed = {"token_ids": ids, "finish_reason": given["finish_reason"]}
    if route is Route.COMPLETIONS:
        trimmed = listed | {"logprobs": {"token_logprobs": values, "tokens": [""] * len(values)}}
    else:
        entries = [{"token_id": t, "logprob": v} for t, v in zip([*ids, ends[0]], values, strict=True)]
        trimmed = listed | {"logprobs": {"content": entries}}
    config = {"stop_ids": frozenset(ends)}
    broken(lambda: ask(server(lambda body: trimmed), [1], Sampling(), route, **config), "ids")

    whole = {**trimmed, "token_ids": [*ids, ends[0]]}
    reply = ask(server(lambda body: whole), [1], Sampling(), route, **config)
    assert reply.token_ids.tolist() == [5, 6, 2]
    assert reply.logprobs.tolist() == np.array(values, np.float32).tolist()
    assert reply.finish is Finish.STOP


# E05


@ROUTES
@report("E05")
def test_ids_behind_a_stop_string_are_refused(given: dict[str, Any], route: Route) -> None:
    texts, stop = given["token_texts"], given["stop"]
    spelled = [byte_ids(text) for text in texts]  # the same texts, in the ids of the renderer

    def call(kept: int) -> Trace:
        ids = [token for each in spelled[:kept] for token in each]
        choice = {"token_ids": ids, "finish_reason": "stop", "stop_reason": stop}
        return roll(server(lambda body: choice), Sampling(stop=(stop,)), route=route)

    for kept in (3, 4):
        broken = call(kept)
        assert broken.ending is not None
        assert broken.ending.reason is Reason.ENGINE_CONTRACT
        assert "behind the stop string" in broken.ending.detail
        assert len(samples(broken)) == 0
    fine = call(2)
    (turn,) = fine.policy_nodes
    assert fine.graph[turn].sampled_ids.tolist() == [token for each in spelled[:2] for token in each]
    assert [each.finish for each in fine.calls] == [Finish.STOP_STRING]
    assert bytes_renderer().decode(fine.graph[turn].sampled_ids) == given["text"] + stop


# E06


def one_word(values: list[float]) -> Callable[[dict[str, Any]], Any]:
    return lambda body: {"token_ids": [*byte_ids("hi"), STOP], "finish_reason": "stop", "values": values}


@report("E06")
def test_raw_logprobs_at_another_temperature_do_not_leave(given: dict[str, Any], tmp_path: Path) -> None:
    heat = given["temperature"]
    raw, scaled = given["raw_logprobs"], given["scaled_logprobs"]
    logits = np.array(given["logits"]) / heat
    trainer = logits - np.log(np.exp(logits).sum())
    np.testing.assert_allclose(np.exp(trainer - np.array(scaled)), 1, atol=1e-4)
    assert abs(np.exp(trainer - np.array(raw))[0] - 1) > 0.2

    sink = MemorySink()
    for mode, values, kind, fits in (
        ("processed", scaled, LogprobKind.PROCESSED, True),
        ("temperature", scaled, LogprobKind.TEMPERATURE, True),
        ("raw", raw, LogprobKind.RAW, False),
    ):
        trace = roll(server(one_word(values), mode), Sampling(temperature=heat), sink)
        (call,), (sample,) = trace.calls, samples(trace)
        assert (call.logprob_kind, call.sampling.temperature) == (kind, heat)
        assert (sample.logprob_kinds, sample.logprobs_fit) == (frozenset({kind}), fits)
        if fits:
            given_back = sample.logprobs[sample.loss_mask]
            np.testing.assert_allclose(np.exp(trainer - given_back), 1, atol=1e-4)
            export(sink, "jsonl", tmp_path / f"{mode}.jsonl")
    with pytest.raises(UsageError, match="not of the distribution"):
        export(sink, "jsonl", tmp_path / "mixed.jsonl")


# E07


@report("E07")
def test_what_was_drawn_from_a_part_of_the_vocabulary_does_not_leave(given: dict[str, Any], tmp_path: Path) -> None:
    kept_mass = sum(given["p_full"][token] for token in given["kept"])
    ratio = np.exp(given["trainer_logprob"] - given["engine_logprob"])
    np.testing.assert_allclose(ratio, kept_mass, atol=1e-3)

    for place, cut in enumerate(({"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1})):
        sink = MemorySink()
        trace = roll(server(one_word([given["engine_logprob"]] * 3), "processed"), Sampling(**cut), sink)
        assert (trace.calls[0].logprob_kind, trace.calls[0].sampling.truncates) == (LogprobKind.PROCESSED, True)
        with pytest.raises(UsageError, match="part of the vocabulary"):
            export(sink, "jsonl", tmp_path / f"{place}.jsonl")
        told = export(sink, "jsonl", tmp_path / f"{place}.jsonl", allow_unfit_logprobs=True)
        assert told.unfit_samples == 1
    whole = MemorySink()
    roll(server(one_word([given["trainer_logprob"]] * 3), "processed"), Sampling(), whole)
    assert export(whole, "jsonl", tmp_path / "whole.jsonl").unfit_samples == 0


# E09


@report("E09")
def test_ids_are_read_where_their_logprobs_are(given: dict[str, Any]) -> None:
    choice = given["choice"] | {"finish_reason": "length", "usage": {"completion_tokens": 2}}
    reply = ask(server(lambda body: choice), [1], Sampling(max_tokens=2), Route.GENERATE)
    content = given["choice"]["logprobs"]["content"]
    assert reply.token_ids.tolist() == [entry["token_id"] for entry in content] == [53122, 316]
    assert reply.logprobs.tolist() == np.array([entry["logprob"] for entry in content], np.float32).tolist()


@report("E09")
def test_a_text_is_never_encoded_again(given: dict[str, Any]) -> None:
    lists = {"token_logprobs": [-1.0, -0.2], "tokens": [" Pant", "om"]}
    choice = {**given["choice"], "logprobs": lists, "finish_reason": "length", "usage": {"completion_tokens": 2}}
    broken(lambda: ask(server(lambda body: choice), [1], Sampling(max_tokens=2), Route.COMPLETIONS), "holds no ids")


class WithoutIds(VllmServer):
    """A server that knows nothing of the flag."""

    def probe(self, body: dict[str, Any], parameters: dict[str, Any], path: str) -> dict[str, Any]:
        reply = super().probe(body, parameters, path)
        del reply["choices"][0]["token_ids"]
        return reply


@report("E09")
def test_the_start_fails_where_no_ids_come(given: dict[str, Any]) -> None:
    assert given["choice"]["token_ids"] is None
    with pytest.raises(UsageError, match="holds no ids"):
        ask(WithoutIds(models=LARGE), [1], Sampling(), Route.COMPLETIONS)
