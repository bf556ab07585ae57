"""One request whose reply is held to the token contract, as a turn holds it: the clients leave that to who asks."""

from __future__ import annotations

from rollbook.policy import Completion, Policy, TokenIds, check_completion
from rollbook.trace import Sampling

__all__ = ["sampled"]


async def sampled(policy: Policy, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
    """What `policy` replies. Raises what it raises, and `RolloutFailure` (`engine_contract`)."""
    completion = await policy.sample(prompt, sampling, session=session)
    check_completion(completion, prompt, sampling)
    return completion
