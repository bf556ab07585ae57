import asyncio
import json
import subprocess
import sys

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.policy import ScriptedFailure, ScriptedPolicy, ScriptedReply, check_completion, load_script
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

PROMPT = np.array([1], np.int32)
SAMPLING = Sampling(max_tokens=8, seed=1)
ONE, TWO = ScriptedReply([5, 2], [-0.5, -0.25]), ScriptedReply([7], [-1.0], Finish.LENGTH, ((3, 1),))


def take(policy, *sessions):
    async def run():
        await policy.start()
        replies = [await policy.sample(PROMPT, SAMPLING, session=session) for session in sessions]
        await policy.close()
        return replies

    return asyncio.run(run())


def test_a_reply_is_handed_on_as_given():
    (reply,) = take(ScriptedPolicy([TWO]), "s")
    check_completion(reply, PROMPT, SAMPLING)
    assert (reply.token_ids.tolist(), reply.logprobs.tolist()) == ([7], [-1.0])
    assert (reply.token_ids.dtype, reply.logprobs.dtype) == (np.int32, np.float32)
    assert (reply.finish, reply.versions, reply.logprob_kind) == (Finish.LENGTH, ((3, 1),), LogprobKind.RAW)


def test_a_list_starts_anew_in_each_session_and_goes_round():
    replies = take(ScriptedPolicy([ONE, TWO]), "a", "b", "a", "a", "b")
    assert [len(reply.token_ids) for reply in replies] == [2, 2, 1, 2, 1]


def test_sessions_have_their_own_scripts_and_running_out_is_an_error():
    policy = ScriptedPolicy({"a": [ONE], "b": [TWO, ONE]})
    assert [len(reply.token_ids) for reply in take(policy, "b", "a", "b")] == [1, 2, 2]
    with pytest.raises(UsageError, match="'a' ran out: it holds 1 replies"):
        take(policy, "a")
    with pytest.raises(UsageError, match="no session 'c'; it has a, b"):
        take(policy, "c")


def test_a_failure_is_raised_anew_each_time():
    policy = ScriptedPolicy([ScriptedFailure(Reason.RATE_LIMITED, "busy")])
    for _ in range(2):
        with pytest.raises(RolloutFailure, match="busy") as caught:
            take(policy, "s")
        assert caught.value.reason is Reason.RATE_LIMITED


def test_a_function_sees_the_request():
    (reply,) = take(ScriptedPolicy([ONE]), "x")
    policy = ScriptedPolicy(lambda prompt, sampling, session: seen.append((prompt, sampling, session)) or reply)
    seen = []
    assert take(policy, "s") == [reply]
    assert seen == [(PROMPT, SAMPLING, "s")]


def test_a_delay_can_be_cancelled():
    async def run():
        policy = ScriptedPolicy([ScriptedReply([1], [-1.0], delay=60.0)])
        async with asyncio.timeout(0.01):
            await policy.sample(PROMPT, SAMPLING, session="s")

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_replies_are_shared_and_so_cannot_be_written():
    (reply,) = take(ScriptedPolicy([ONE]), "s")
    with pytest.raises(ValueError, match="read-only"):
        reply.token_ids[0] = 9


def test_an_empty_script_is_refused():
    with pytest.raises(UsageError, match="at least one reply"):
        ScriptedPolicy([])


def test_a_file_is_a_script(tmp_path):
    path = tmp_path / "s.json"
    steps = [
        {"type": "reply", "token_ids": [5], "logprobs": [-1], "finish": "length", "versions": [[2, 1]]},
        {"type": "failure", "reason": "engine_timeout"},
    ]
    path.write_text(json.dumps({"context_length": 99, "replies": steps}))
    policy = load_script(path)
    assert (policy.info.name, policy.info.context_length) == (f"scripted:{path}", 99)
    assert take(policy, "s")[0].versions == ((2, 1),)
    with pytest.raises(RolloutFailure, match="engine_timeout"):
        take(policy, "s")
    path.write_text(json.dumps({"name": "demo", "sessions": {"a": steps}}))
    assert load_script(path).info.name == "demo"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a script"),
        ("{}", "either replies or sessions"),
        ('{"replies": [], "sessions": {}}', "either replies or sessions"),
        ('{"replies": []}', "at least one reply"),
        ('{"replies": [{"type": "reply", "token_ids": ["a"], "logprobs": []}]}', "not a script"),
        ('{"replies": [{"type": "failure", "reason": "bad mood"}]}', "bad mood"),
        ('{"replys": []}', "replys"),
        ('{"replies": [{"type": "reply", "token_ids": [99999999999], "logprobs": [0]}]}', "below 2"),
        ('{"replies": ' + "[" * 100_000, "not a script"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_script(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read the script"):
        load_script(tmp_path / "none.json")


def test_the_room_is_light_to_import():
    code = "import sys, rollbook.policy; print(sorted({'aiohttp', 'xllamacpp'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
