"""The embedded engine on the real model."""

import asyncio
import contextlib
import time

import numpy as np
import pytest
from tokenizers import Tokenizer

from rollbook.errors import ConfigError, ModelError, UsageError
from rollbook.policy.local import PIECE, LocalConfig, LocalPolicy
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from tests.policy.held import sampled


@contextlib.asynccontextmanager
async def running(files, **changes):
    given = {"name": "local:x", "weights": files.weights, "stop_ids": files.stop_ids, "context_length": 1024}
    policy = LocalPolicy(LocalConfig(**(given | changes)))
    await policy.start()
    try:
        yield policy
    finally:
        await policy.close()


@pytest.fixture
def chat(smollm2):
    tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())

    def ids(text):
        turns = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return np.array(tokenizer.encode(turns).ids, np.int32)

    return ids


def long_prompt(smollm2):
    tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())
    return np.array(tokenizer.encode("one two three one two three one two three one two").ids, np.int32)


GREEDY = Sampling(temperature=0.0, max_tokens=24, seed=0)


def test_greedy_and_seeds_repeat_and_other_seeds_differ(smollm2, chat):
    async def run():
        async with running(smollm2) as policy:
            prompt = chat("Tell me about whales.")
            settings = (GREEDY, GREEDY, *(Sampling(max_tokens=24, seed=seed) for seed in (1, 1, 2)))
            return [await sampled(policy, prompt, sampling, session="s") for sampling in settings], policy.info

    (greedy, again, one, same, other), info = asyncio.run(run())
    assert greedy.token_ids.tolist() == again.token_ids.tolist()
    assert greedy.logprobs.tolist() == again.logprobs.tolist()
    assert one.token_ids.tolist() == same.token_ids.tolist()
    assert one.token_ids.tolist() != other.token_ids.tolist()
    assert (greedy.logprob_kind, info.logprob_kind) == (LogprobKind.RAW, LogprobKind.RAW)
    assert again.cached_tokens > 0
    assert again.prompt_tokens == greedy.prompt_tokens


def test_aligned_logprobs_are_those_of_a_second_request(smollm2, chat):
    """Each logprob out of the reply is what the engine gives for that id behind that prefix."""

    async def run():
        async with running(smollm2) as policy:
            prompt = chat("Write 🎉🚀 and 日本語 please")
            reply = await sampled(policy, prompt, Sampling(max_tokens=40, seed=1), session="s")
            prefix = prompt.tolist()
            tokens = reply.token_ids.tolist()
            scored = [(await policy._sampler.score(prefix + tokens[:at], token))[0] for at, token in enumerate(tokens)]
            return reply, scored

    reply, scored = asyncio.run(run())
    assert len(reply.rescored)
    assert np.abs(reply.logprobs - np.array(scored)).max() < 0.35  # quantised activations differ with the batch's shape
    assert np.median(np.abs(reply.logprobs - np.array(scored))) < 0.02


def test_tokens_inside_characters_are_rescored_and_marked(smollm2, chat):
    async def run():
        async with running(smollm2) as policy:
            prompt = chat("Only emoji: 🎉🚀👩‍🚀🇨🇭 日本語")
            tasks = [
                sampled(policy, prompt, Sampling(temperature=1.3, max_tokens=32, seed=seed), session=str(seed))
                for seed in range(4)
            ]
            return await asyncio.gather(*tasks)

    replies = asyncio.run(run())
    assert sum(len(reply.rescored) for reply in replies) > 0
    for reply in replies:
        assert np.isfinite(reply.logprobs).all()
        assert (reply.logprobs <= 1e-3).all()
        assert reply.tries >= 1 + len(reply.rescored)
        assert len(reply.logprobs) == len(reply.token_ids)


def test_eight_at_once_keep_their_prompts_apart(smollm2, chat):
    async def run():
        async with running(smollm2, slots=8) as policy:
            prompts = [chat(f"Say the number {number} and nothing else.") for number in range(10)]
            together = await asyncio.gather(
                *(sampled(policy, prompt, GREEDY, session=str(at)) for at, prompt in enumerate(prompts))
            )
            return prompts, together

    prompts, together = asyncio.run(run())
    for prompt, reply in zip(prompts, together, strict=True):
        assert reply.prompt_tokens == len(prompt)
        assert reply.queue is not None


def test_finishes(smollm2, chat):
    async def run():
        async with running(smollm2) as policy:
            ask = policy.sample
            end = await ask(chat("Say hi."), Sampling(temperature=0.0, max_tokens=200, seed=0), session="s")
            cut = await ask(chat("Tell a story."), Sampling(temperature=0.0, max_tokens=3, seed=0), session="s")
            word = await ask(
                chat("Count to ten"), Sampling(temperature=0.0, max_tokens=60, seed=0, stop=("e",)), session="s"
            )
            forced = Sampling(max_tokens=8, seed=0, grammar='root ::= "yes"')
            return end, cut, word, await ask(chat("Well?"), forced, session="s")

    end, cut, word, forced = asyncio.run(run())
    assert (end.finish, end.token_ids[-1] in smollm2.stop_ids) == (Finish.STOP, True)
    assert (cut.finish, len(cut.token_ids)) == (Finish.LENGTH, 3)
    tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())
    assert word.finish is Finish.STOP_STRING
    assert "e" in tokenizer.decode(word.token_ids[-1:].tolist())  # the matching token is part of what was sampled
    assert "e" not in tokenizer.decode(word.token_ids[:-1].tolist())
    assert len(word.token_ids) - 1 in word.rescored
    assert tokenizer.decode(forced.token_ids.tolist()) == "yes"
    assert (forced.finish, forced.logprobs.sum() < -2.0) == (Finish.STOP, True)  # raw: not the grammar's certainty


def test_pieces_make_one_reply(smollm2):
    async def run():
        async with running(smollm2) as policy:
            prompt = long_prompt(smollm2)
            sampling = Sampling(temperature=0.0, max_tokens=PIECE * 2 + 5, seed=0)
            return await sampled(policy, prompt, sampling, session="s"), len(prompt)

    reply, sent = asyncio.run(run())
    assert len(reply.token_ids) == PIECE * 2 + 5
    assert (reply.finish, reply.prompt_tokens, reply.tries) == (Finish.LENGTH, sent, 3)


def test_a_cancelled_generation_gives_its_slot_back(smollm2):
    async def run():
        async with running(smollm2, slots=1) as policy:
            prompt = long_prompt(smollm2)
            task = asyncio.create_task(
                sampled(policy, prompt, Sampling(temperature=0.0, max_tokens=900, seed=0), session="a")
            )
            await asyncio.sleep(0.3)
            assert not task.done()
            task.cancel()
            started = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = time.monotonic() - started
            await sampled(policy, prompt, Sampling(max_tokens=1, seed=0), session="b")
            return left, time.monotonic() - started

    left, free = asyncio.run(run())
    assert left < 0.5
    assert free < 4.0  # 900 tokens take far longer


def test_closing_ends_what_is_in_flight(smollm2):
    async def run():
        async with running(smollm2, slots=2) as policy:
            sampling = Sampling(temperature=0.0, max_tokens=900, seed=0)
            tasks = [
                asyncio.create_task(sampled(policy, long_prompt(smollm2), sampling, session=str(at))) for at in range(3)
            ]
            await asyncio.sleep(0.3)
            await policy.close()
            replies = await asyncio.gather(*tasks, return_exceptions=True)
            await policy.close()
            with pytest.raises(RolloutFailure, match="not running"):
                await sampled(policy, long_prompt(smollm2), sampling, session="s")
            return replies

    for reply in asyncio.run(run()):
        assert isinstance(reply, RolloutFailure)
        assert reply.reason is Reason.ENGINE_UNREACHABLE


def test_a_closed_policy_can_start_again(smollm2):
    async def run():
        async with running(smollm2) as policy:
            await policy.start()
            await policy.close()
            await policy.start()
            return await sampled(policy, long_prompt(smollm2), GREEDY, session="s")

    assert len(asyncio.run(run()).token_ids) == 24


def test_too_slow_is_a_timeout(smollm2):
    async def run():
        async with running(smollm2, timeout=0.1) as policy:
            await sampled(policy, long_prompt(smollm2), Sampling(temperature=0.0, max_tokens=60, seed=0), session="s")

    with pytest.raises(RolloutFailure) as caught:
        asyncio.run(run())
    assert caught.value.reason is Reason.ENGINE_TIMEOUT


@pytest.mark.parametrize(
    ("length", "sampling", "error", "message"),
    [
        (1024, Sampling(max_tokens=1), RolloutFailure, "context_overflow"),
        (1000, Sampling(max_tokens=25), RolloutFailure, "do not fit 1024"),
        (0, Sampling(max_tokens=1), ConfigError, "empty prompt"),
        (4, Sampling(max_tokens=1, stop_token_ids=(9,)), ConfigError, "stop strings"),
        (4, Sampling(max_tokens=1, grammar="root ::= (("), ConfigError, "grammar"),
    ],
)
def test_what_cannot_be_done_is_said(smollm2, length, sampling, error, message):
    async def run():
        async with running(smollm2) as policy:
            await sampled(policy, np.ones(length, np.int32), sampling, session="s")

    with pytest.raises(error, match=message):
        asyncio.run(run())


def test_a_start_that_fails_leaves_nothing_running(smollm2, tmp_path):
    async def run(**changes):
        async with running(smollm2, **changes):
            pass

    with pytest.raises(UsageError, match="trained for 8192 tokens"):
        asyncio.run(run(context_length=9000, slots=1))
    with pytest.raises(ModelError, match="no model file"):
        asyncio.run(run(weights=tmp_path / "none.gguf"))
