"""Engines that give no ids: what is encoded from their text is never put beside what they sampled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.errors import RecordError, UsageError
from rollbook.export import export
from rollbook.policy import TokenIds
from rollbook.policy.http import EngineAddress, HttpReply
from rollbook.policy.llamacpp_wire import Reply
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.rollout import LoadedPolicy, rollout
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Reason, RolloutFailure, Sampling, Task, Trace, samples
from tests.cases.case import Talk, report
from tests.policy.held import sampled
from tests.policy.serving import serving
from tests.policy.test_sglang import Server
from tests.policy.text_server import Endpoint, connected, said


def over_text(answer: dict[str, Any], sink: RunWriter | None = None) -> tuple[Trace, Endpoint]:
    """A rollout over an endpoint that gives text, and beside it logprobs that nobody asked for."""
    made = said(answer["text"], usage=(4, len(answer["token_logprobs"])))
    made["choices"][0]["logprobs"] = {"content": [{"token": "?", "logprob": each} for each in answer["token_logprobs"]]}
    endpoint = Endpoint(made)

    async def run() -> Trace:
        async with connected(endpoint) as policy:
            return await rollout(Talk, Task(id="t", prompt="?"), LoadedPolicy(policy), sink=sink)

    return asyncio.run(run()), endpoint


@report("A10")
def test_text_without_ids_never_gets_ids_nor_logprobs(given: dict[str, Any], tmp_path: Path) -> None:
    """Neither where the lengths agree by chance (case a) nor where they do not (case b)."""
    for place, answer in enumerate((given["server"], given["case_b"])):
        with RunWriter.create(tmp_path / f"run{place}") as writer:
            trace, endpoint = over_text(answer, writer)
        turn = trace.turns()[0]
        assert turn.message.content == answer["text"]
        assert turn.logprobs is not None
        assert (len(turn.token_ids), len(turn.logprobs)) == (0, 0)
        assert not endpoint.asked[0].get("logprobs")
        assert trace.calls[0].logprob_kind is None
        assert not trace.head.tokens  # the mark of it: no token provenance
        with pytest.raises(RecordError, match="no token ids"):
            samples(trace)
        with pytest.raises(UsageError, match="no_token_ids"):
            export(RunReader(tmp_path / f"run{place}"), "jsonl", tmp_path / "out.jsonl")


@report("A10")
def test_an_engine_of_ids_that_leaves_them_out_breaks_its_contract(given: dict[str, Any]) -> None:
    """Its client does not fall back to the text, in whatever form the logprobs come."""
    for answer in (given["server"], given["case_b"]):
        entries = [[logprob, None, None] for logprob in answer["token_logprobs"]]
        meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": entries}
        for body in ({"text": answer["text"], "meta_info": meta}, {"text": answer["text"]}):
            with pytest.raises(RolloutFailure) as caught:
                asyncio.run(over_sglang(body))
            assert caught.value.reason is Reason.ENGINE_CONTRACT
        listed = b'{"content": "x", "completion_probabilities": [], "stop_type": "eos", "truncated": false}'
        with pytest.raises(RolloutFailure, match="engine_contract"):
            HttpReply(200, listed, None).decode(Reply)


@report("A10")
def test_ids_that_the_client_encoded_are_not_those_beside_the_logprobs(given: dict[str, Any]) -> None:
    """Equal lengths are no proof: each logprob comes with its id, and the ids must be the same."""
    encoded, logprobs = given["client_encoded_ids"], given["server"]["token_logprobs"]
    sampled = [token + 1 for token in encoded]
    meta = {
        "finish_reason": {"type": "stop", "matched": sampled[-1]},
        "output_token_logprobs": [[value, token, None] for value, token in zip(logprobs, sampled, strict=True)],
    }
    with pytest.raises(RolloutFailure, match="not those that were sampled"):
        asyncio.run(over_sglang({"output_ids": encoded, "meta_info": meta}))


async def over_sglang(body: dict[str, Any]) -> None:
    prompt: TokenIds = np.array([1, 2, 3], np.int32)
    async with serving(Server(body)) as url:
        policy = SglangPolicy(RemoteConfig(name="sglang:x", address=EngineAddress(url=url), stop_ids=frozenset({9})))
        await policy.start()
        try:
            await sampled(policy, prompt, Sampling(max_tokens=8), session="r")
        finally:
            await policy.close()
