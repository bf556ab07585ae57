"""Our rollouts inside of slime or Miles: a custom generate function, and the hook that makes advantages of rewards.

    # loops.py
    generate = Generate(Calculator, task_of)

    --custom-generate-function-path loops.generate
    --custom-reward-post-process-path rollbook.run.doors.slime.post_process_rewards

Each call is one attempt at the task that `task_of` makes of slime's sample, on slime's own SGLang router, with the
temperature and limit that slime asks for. It returns a list with one `Sample` for each branch
(`rollbook.export.doors.slime` says what they hold), of slime's own class and with its numbers and rollout id. An
attempt without a vote comes back as its prompt alone, marked to be removed: nothing of it trains, and the hook leaves
it out of its group's mean. Nothing of slime is imported here: its sample brings its class.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted
from rollbook.export.doors.slime import Numbers, core
from rollbook.rewards import DEFAULT_ESTIMATOR, ESTIMATORS, Vote
from rollbook.rewards.estimators import estimate
from rollbook.rollout import EnvFactory, LoadedPolicy, RolloutSettings
from rollbook.rollout.rollout import DEFAULT_SETTINGS
from rollbook.run.doors.attempt import Attempt, make_attempt
from rollbook.run.policies import load_policy
from rollbook.trace import Sampling, Sink, Task

__all__ = ["Generate", "SlimeSample", "post_process_rewards"]

_PLACE = ("group_index", "index", "rollout_id", "prompt", "label", "session_id", "routing_key", "train_metadata")
"""What is slime's own and stays as it gave it."""


class SlimeSample(Protocol):
    """What of slime's (and Miles') `Sample` is used."""

    group_index: int | None
    index: int | None
    rollout_id: int | None
    reward: float | None
    remove_sample: bool
    metadata: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]: ...

    @staticmethod
    def from_dict(data: dict[str, Any]) -> SlimeSample: ...


class Generate:
    """What slime calls as ``await generate(args, sample, sampling_params)``."""

    def __init__(
        self,
        make_env: EnvFactory,
        task_of: Callable[[Any], Task],
        policy: LoadedPolicy | None = None,
        *,
        settings: RolloutSettings = DEFAULT_SETTINGS,
        sink: Sink | None = None,
        allow_unfit_logprobs: bool = False,
    ) -> None:
        """`task_of`: makes the task of slime's sample (its prompt, label, metadata). `policy`: None: slime's router,
        with the tokenizer of its checkpoint. `settings`: everything but what slime says of sampling. `sink`: where
        traces are kept; None: nowhere. `allow_unfit_logprobs`: True where slime samples from a part of the vocabulary
        and corrects for it."""
        self._make_env, self._task_of, self._policy = make_env, task_of, policy
        self._settings, self._sink, self._allow = settings, sink, allow_unfit_logprobs
        self._starting: asyncio.Task[LoadedPolicy] | None = None

    async def __call__(self, args: Any, sample: SlimeSample, sampling_params: dict[str, Any]) -> list[SlimeSample]:
        """One attempt, as slime's samples."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start(args))
        policy = await asyncio.shield(self._starting)
        task = self._task_of(sample)
        key = secrets.token_hex(8) if sample.index is None else str(sample.index)  # slime never gives an index twice
        asked = _asked(self._settings, sampling_params)
        attempt = await make_attempt(self._make_env, task, policy, asked, key, sink=self._sink)
        if not attempt.samples:
            return [_without_vote(sample, attempt, task, policy)]
        return self._branches(sample, attempt)

    async def _start(self, args: Any) -> LoadedPolicy:
        policy = self._policy
        if policy is None:
            router = f"sglang:http://{args.sglang_router_ip}:{args.sglang_router_port}"
            policy = load_policy(router, tokenizer=args.hf_checkpoint)
        await policy.policy.start()
        return policy

    def _branches(self, sample: SlimeSample, attempt: Attempt) -> list[SlimeSample]:
        taken = admitted(attempt.samples, allow_unfit_logprobs=self._allow)
        return [_theirs(sample, core(each, Numbers())) for each in taken]


def _asked(settings: RolloutSettings, asked: dict[str, Any]) -> RolloutSettings:
    """`settings` with what slime asks for."""
    if asked.get("stop"):
        raise UsageError("rollouts end their turns by token id: set no --rollout-stop")
    fields: dict[str, Any] = {name: asked[name] for name in ("temperature", "top_p") if asked.get(name) is not None}
    fields["top_k"] = max(int(asked.get("top_k") or 0), 0)  # SGLang says -1 for all
    fields["stop_token_ids"] = tuple(asked.get("stop_token_ids") or ())
    sampling: Sampling = msgspec.structs.replace(settings.sampling, **fields)
    limit = asked.get("max_new_tokens")
    limits = settings.limits if limit is None else msgspec.structs.replace(settings.limits, max_generation=int(limit))
    return dataclasses.replace(settings, sampling=sampling, limits=limits)


def _theirs(sample: SlimeSample, fields: dict[str, Any]) -> SlimeSample:
    given = sample.to_dict()
    own = {name: given[name] for name in _PLACE if name in given}
    if own.get("rollout_id") is None:
        own["rollout_id"] = given.get("index")
    metadata = {**(sample.metadata or {}), **fields["metadata"]}
    return type(sample).from_dict({**fields, **own, "metadata": metadata})


def _without_vote(sample: SlimeSample, attempt: Attempt, task: Task, policy: LoadedPolicy) -> SlimeSample:
    prompt = policy.renderer.open(task.messages(), ()).token_ids.tolist()
    ending = attempt.trace.ending
    fields: dict[str, Any] = {
        "tokens": prompt,
        "response_length": 0,
        "loss_mask": [],
        "rollout_log_probs": [],
        "reward": 0.0,
        "remove_sample": True,
        "status": "failed",
        "metadata": {"vote": False, "ending_reason": None if ending is None else str(ending.reason)},
    }
    return _theirs(sample, fields)


def post_process_rewards(args: Any, samples: Sequence[SlimeSample]) -> tuple[list[float], list[float]]:
    """slime's reward hook: (rewards, advantages), one for each sample.

    Each attempt of a group votes once, however many samples it has; what is removed votes not and gets 0. Recorded
    advantages (in the metadata of samples from a file) are used as they are, where every voting sample has one. Raises
    `UsageError` where samples of one attempt have different rewards, or one that votes has none.
    """
    del args
    rewards = [float(sample.reward or 0.0) for sample in samples]
    voting = [index for index, sample in enumerate(samples) if not sample.remove_sample]
    if bare := [samples[index].rollout_id for index in voting if samples[index].reward is None]:
        raise UsageError(f"rollout {bare[0]} has no reward, which is not 0: mark its samples with remove_sample")
    recorded: list[float | None] = [(samples[index].metadata or {}).get("advantage") for index in voting]
    given = [0.0] * len(samples)
    known = [float(each) for each in recorded if each is not None]
    if len(known) == len(voting):
        for index, each in zip(voting, known, strict=True):
            given[index] = each
        return rewards, given
    for group in dict.fromkeys(samples[index].group_index for index in voting):
        members = [index for index in voting if samples[index].group_index == group]
        advantages = _advantages((str(samples[index].rollout_id), rewards[index]) for index in members)
        for index in members:
            given[index] = advantages[str(samples[index].rollout_id)]
    return rewards, given


def _advantages(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    """By rollout, of one group; `rows`: (rollout, reward) of each sample."""
    votes: dict[str, Vote] = {}
    for rollout, reward in rows:
        if votes.setdefault(rollout, Vote(rollout=rollout, reward=reward)).reward != reward:
            raise UsageError(
                f"samples of rollout {rollout} have different rewards: the reward is of the whole attempt, so give "
                "each of its samples the same"
            )
    (credit,) = estimate(ESTIMATORS[DEFAULT_ESTIMATOR], [list(votes.values())])
    return credit.values
