"""Whether a trainer's own logprobs of a sample would be of the distribution that it was sampled from.

Rule: logprobs of another distribution, and tokens drawn from a part of the vocabulary, are told of, never let through
unseen: a trainer without a correction would compute a wrong importance weight for every token.
"""

from __future__ import annotations

from rollbook.trace.sample import Sample

__all__ = ["unfit"]


def unfit(sample: Sample) -> str | None:
    """Why a trainer's own logprobs would not be of the same distribution; None where they would."""
    if not sample.logprobs_fit:
        kinds = ", ".join(sorted(sample.logprob_kinds)) or "absent"
        problem = f"its logprobs ({kinds}) are not of the distribution that was sampled"
    elif any(sampling.truncates for sampling in sample.samplings):
        problem = "its tokens were drawn from a part of the vocabulary, and a trainer's logprobs are over all of it"
    else:
        return None
    return (
        f"rollout {sample.rollout!a}, branch {sample.branch}: {problem}; sample at temperature 1 without top-k, top-p "
        "or min-p, or allow unfit logprobs if your trainer corrects them"
    )
