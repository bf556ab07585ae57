"""Checks that any engine must pass through its client, real or fake. Each is one sentence with an assert behind it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rollbook.policy.weights import PauseMode
from rollbook.trace import Finish, Reason, RolloutFailure, Sampling
from tests.policy.contract.clients import Can, Check, Handle
from tests.policy.held import sampled

__all__ = ["CHECKS"]


async def says_what_it_is(handle: Handle) -> None:
    policy = handle.make()
    await policy.start()
    await policy.start()
    info = policy.info
    assert info.name.endswith(handle.url)
    assert info.engine
    assert 0 < info.context_length <= handle.context_length
    await policy.close()
    await policy.close()


async def prompt_is_counted_and_echoed(handle: Handle) -> None:
    async with handle.policy() as policy:
        done = await handle.greedy(policy, 4)
    assert done.prompt_tokens in (None, len(handle.prompt))
    if Can.ECHO in handle.can:
        assert done.prompt_ids is not None
        assert done.prompt_ids.tolist() == handle.prompt


async def replies_keep_the_contract(handle: Handle) -> None:
    async with handle.policy() as policy:
        for seed in range(4):
            sampling = Sampling(max_tokens=24, seed=seed)
            done = await sampled(policy, handle.ids, sampling, session=handle.session())
            assert done.logprob_kind is policy.info.logprob_kind
            assert done.tries >= 1


async def a_generation_ends_by_id_or_by_its_limit(handle: Handle) -> None:
    async with handle.policy() as policy:
        ends = set[Finish]()
        for seed in range(12):
            limit = 4 if seed % 2 else 160
            done = await sampled(policy, handle.ids, Sampling(max_tokens=limit, seed=seed), session=handle.session())
            ends.add(done.finish)
            inside = handle.stop_ids.intersection(done.token_ids[:-1].tolist())
            assert not inside
            if done.finish is Finish.STOP:
                assert int(done.token_ids[-1]) in handle.stop_ids
            else:
                assert done.finish is Finish.LENGTH
                assert len(done.token_ids) == limit
        assert Finish.LENGTH in ends


async def an_id_that_is_asked_for_ends_it(handle: Handle) -> None:
    async with handle.policy() as policy:
        plain = (await handle.greedy(policy, 8)).token_ids.tolist()
        end = next(each for each in plain[1:] if each not in handle.stop_ids)
        sampling = Sampling(temperature=0.0, max_tokens=8, seed=0, stop_token_ids=(end,))
        done = await sampled(policy, handle.ids, sampling, session=handle.session())
    assert done.token_ids.tolist() == plain[: plain.index(end) + 1]
    assert done.finish is Finish.STOP


async def a_stop_string_ends_it_with_its_last_token(handle: Handle) -> None:
    decode = handle.decode
    assert decode is not None
    async with handle.policy() as policy:
        plain = (await handle.greedy(policy, 12)).token_ids
        texts = [decode(plain[: size + 1]) for size in range(len(plain))]
        at = next(at for at in range(2, len(texts)) if texts[at] != texts[at - 1] and "\ufffd" not in texts[at])
        word = texts[at][len(texts[at - 2]) :]
        first = next(size for size, text in enumerate(texts) if word in text)
        sampling = Sampling(temperature=0.0, max_tokens=12, seed=0, stop=(word,))
        done = await sampled(policy, handle.ids, sampling, session=handle.session())
    assert done.token_ids.tolist() == plain[: first + 1].tolist()
    assert done.finish is Finish.STOP_STRING


async def a_prompt_without_room_is_refused_before_it_is_sent(handle: Handle) -> None:
    async with handle.policy() as policy:
        before = 0 if handle.fake is None else len(handle.fake.log)
        longer = np.resize(handle.ids, policy.info.context_length)
        for prompt, limit in ((longer, 1), (longer[:-8], 9)):
            with pytest.raises(RolloutFailure) as caught:
                await sampled(policy, prompt, Sampling(max_tokens=limit), session=handle.session())
            assert caught.value.reason is Reason.CONTEXT_OVERFLOW
        assert handle.fake is None or len(handle.fake.log) == before


async def the_context_can_be_filled(handle: Handle) -> None:
    """With less context than the engine has, so that a real one need not fill its own."""
    policy = handle.make(context_length=len(handle.prompt) + 6)
    await policy.start()
    try:
        done = await sampled(policy, handle.ids, Sampling(seed=1), session=handle.session())
    finally:
        await policy.close()
    assert len(done.token_ids) <= 6
    assert len(done.token_ids) == 6 or done.finish is Finish.STOP


async def greedy_is_repeatable(handle: Handle) -> None:
    async with handle.policy() as policy:
        first, second = [await handle.greedy(policy, 16) for _ in range(2)]
    assert first.token_ids.tolist() == second.token_ids.tolist()
    assert np.allclose(first.logprobs, second.logprobs, atol=2e-2)


async def a_seed_is_kept_to(handle: Handle) -> None:
    async with handle.policy() as policy:
        asked = [Sampling(max_tokens=16, seed=seed) for seed in (5, 5, 6)]
        same, again, other = [
            (await sampled(policy, handle.ids, each, session=handle.session())).token_ids.tolist() for each in asked
        ]
    assert same == again
    assert same != other


async def the_prefix_is_cached_over_turns(handle: Handle) -> None:
    prompt = np.resize(handle.ids, 320).tolist()
    async with handle.policy() as policy:
        session = handle.session()
        sampling = Sampling(max_tokens=8, seed=3)
        first = await sampled(policy, np.array(prompt, np.int32), sampling, session=session)
        longer = [*prompt, *first.token_ids.tolist(), *handle.prompt]
        second = await sampled(policy, np.array(longer, np.int32), sampling, session=session)
    assert second.cached_tokens is not None
    assert 256 <= second.cached_tokens <= len(longer) - 1
    assert second.prompt_tokens in (None, len(longer))


async def many_at_once_do_not_mix(handle: Handle) -> None:
    async with handle.policy() as policy:

        async def one(number: int) -> None:
            prompt = np.array([*handle.prompt, *handle.prompt[: number + 1]], np.int32)
            sampling = Sampling(max_tokens=12, seed=number)
            done = await sampled(policy, prompt, sampling, session=f"many-{number}")
            assert done.prompt_tokens in (None, len(prompt))

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(one(number))


async def a_cancelled_call_leaves_the_client_usable(handle: Handle) -> None:
    async with handle.policy() as policy:
        sampling = Sampling(max_tokens=handle.long, seed=1, temperature=1.0)
        task = asyncio.ensure_future(sampled(policy, handle.ids, sampling, session=handle.session()))
        await asyncio.sleep(handle.underway / 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        done = await handle.greedy(policy, 4)
        assert len(done.token_ids)
        if handle.fake is not None and Can.FREES in handle.can:
            fake = handle.fake
            assert await handle.settled(lambda: fake.running == 0)


async def after_the_end_nothing_is_sent(handle: Handle) -> None:
    policy = handle.make()
    await policy.start()
    info = policy.info
    await policy.close()
    with pytest.raises(Exception, match=r"closed|not connected"):
        await sampled(policy, handle.ids, Sampling(max_tokens=2), session=handle.session())
    assert info.engine
    if handle.fake is not None:
        fake = handle.fake
        assert await handle.settled(lambda: fake.connections == 0)


async def an_abort_gives_the_tokens_so_far(handle: Handle) -> None:
    async with handle.policy() as policy, handle.controlled() as control:
        sampling = Sampling(max_tokens=handle.long, seed=4, temperature=0.0)
        task = asyncio.ensure_future(sampled(policy, handle.ids, sampling, session=handle.session()))
        await asyncio.sleep(handle.underway)
        await control.pause(PauseMode.ABORT)
        cut = await task
        await control.resume()
        assert cut.finish is Finish.ABORT
        assert 0 < len(cut.token_ids) < handle.long
        assert len(cut.logprobs) == len(cut.token_ids)
        grown = [*handle.prompt, *cut.token_ids.tolist()]
        rest = await handle.greedy(policy, 4, grown)
        assert rest.prompt_tokens in (None, len(grown))


async def new_weights_in_the_middle_give_two_spans(handle: Handle) -> None:
    async with handle.policy() as policy, handle.controlled() as control:
        before = await control.version()
        sampling = Sampling(max_tokens=handle.long, seed=4, temperature=0.0, stop_token_ids=())
        task = asyncio.ensure_future(sampled(policy, handle.ids, sampling, session=handle.session()))
        await asyncio.sleep(handle.underway)
        await control.pause(PauseMode.KEEP)
        await control.update(handle.weights, 7)
        await control.resume()
        done = await task
        assert await control.version() == 7
        after = await handle.greedy(policy, 4)
    (old, first), (new, second) = done.versions
    assert (old, new) == (before, 7)
    assert first + second == len(done.token_ids)
    assert after.versions == ((7, len(after.token_ids)),)
    if handle.fake is not None:
        (logged,) = [entry for entry in handle.fake.log if len(entry.versions) == 2]
        assert [count for _, count in logged.versions] == [first, second]


CHECKS = (
    Check(says_what_it_is),
    Check(prompt_is_counted_and_echoed),
    Check(replies_keep_the_contract),
    Check(a_generation_ends_by_id_or_by_its_limit),
    Check(an_id_that_is_asked_for_ends_it, frozenset({Can.STOP_IDS})),
    Check(a_stop_string_ends_it_with_its_last_token, frozenset({Can.STOP_TEXT})),
    Check(a_prompt_without_room_is_refused_before_it_is_sent),
    Check(the_context_can_be_filled),
    Check(greedy_is_repeatable),
    Check(a_seed_is_kept_to),
    Check(the_prefix_is_cached_over_turns, frozenset({Can.CACHED})),
    Check(many_at_once_do_not_mix),
    Check(a_cancelled_call_leaves_the_client_usable),
    Check(after_the_end_nothing_is_sent),
    Check(an_abort_gives_the_tokens_so_far, frozenset({Can.CONTROL})),
    Check(new_weights_in_the_middle_give_two_spans, frozenset({Can.CONTROL, Can.VERSIONS})),
)
