"""The few questions that a run asks a remote engine before it begins.

Every reply of the run is held to the token contract anyway; this refuses a whole engine before time is spent on it. An
engine in the process, a script and one's own policy are not asked: they are what the run's own code makes of them, and
a script's replies are counted.
"""

from __future__ import annotations

import msgspec

from rollbook.errors import UsageError
from rollbook.policy.check import QUICK, check_policy
from rollbook.policy.protocol import RemotePolicy, check_completion
from rollbook.rollout import LoadedPolicy
from rollbook.trace import Message, Reason, Role, RolloutFailure, Sampling

__all__ = ["refuse_unfit"]


async def refuse_unfit(loaded: LoadedPolicy, sampling: Sampling | None = None) -> None:
    """Ask an engine behind a URL for three tokens, and for one with the run's own `sampling`. Raises `UsageError` where
    it drops or alters ids, or cannot sample so. Starts the policy and closes it again."""
    if not isinstance(loaded.policy, RemotePolicy):
        return
    async with loaded:
        name = loaded.policy.info.name
        report = await check_policy(loaded.policy, loaded.renderer, checks=QUICK)
        if report.broken:
            found = "; ".join(f"{each.about}: {each.detail}" for each in report.broken)
            raise UsageError(
                f"{name} is not fit to train on ({found}). `rollbook check policy '{name}'` tells all; a "
                "text:URL#MODEL policy can still be evaluated"
            )
        if sampling is not None:
            await _sample_once(loaded, sampling)


async def _sample_once(loaded: LoadedPolicy, sampling: Sampling) -> None:
    """A setting that the engine has no field for is a `ConfigError`, a reply that breaks the token contract under these
    settings a `UsageError`; a failure in transit says nothing of the next request, and the run itself deals with
    those."""
    prompt = loaded.renderer.open((Message(role=Role.USER, content="x"),), ()).token_ids
    one = msgspec.structs.replace(sampling, max_tokens=1)
    try:
        check_completion(await loaded.policy.sample(prompt, one, session="check"), prompt, one)
    except RolloutFailure as failure:
        if failure.reason is Reason.ENGINE_CONTRACT:
            raise UsageError(
                f"{loaded.policy.info.name} is not fit to train on with this sampling ({failure.detail})"
            ) from failure
