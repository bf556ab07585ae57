"""The loss of one batch: the policy gradient, with a weight for tokens that another policy sampled, and a KL term.

With A the advantage, pi the trained policy, mu the one that sampled, rho = pi / mu of one token, w the token's weight
in the batch (`rollbook.train.batch`) and sg the stop-gradient:

    loss = sum over trained tokens of  w * (kl * k3(pi, reference) - c(sg(rho)) * A * log pi)

`Correction` is c. k3 = r - log r - 1 with r = reference / pi of the token (Schulman, "Approximating KL divergence"):
never below 0, and 0 where both agree. A token that is more versions behind the trainer than `max_lag` allows, or of
which nobody knows the version then, leaves the loss; what stays keeps its weight.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
import torch

from rollbook.errors import ConfigError, UsageError
from rollbook.train.batch import MicroBatch

__all__ = ["Correction", "LossParts", "LossRules", "policy_loss"]


class Correction(StrEnum):
    """What a token's importance ratio rho does."""

    NONE = "none"
    """Nothing: c = 1. Right where the policy that sampled is the one that is trained."""
    TIS = "tis"
    """Truncated importance sampling: c = min(rho, cap) (Yao et al. 2025, "Your efficient RL framework secretly brings
    you off-policy training")."""
    MASKED = "masked"
    """c = rho within the band from `low` to `high`, and 0 outside of it (IcePop, Ling team 2025)."""


class LossRules(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens become a loss."""

    correction: Correction = Correction.TIS
    cap: float = 2.0
    """Of `tis`."""
    low: float = 0.5
    """Of `masked`."""
    high: float = 5.0
    """Of `masked`."""
    kl: float = 0.0
    """Weight of the divergence from the reference; 0: there is no reference."""
    max_lag: int | None = None
    """The most versions that a token may be behind the trainer; None: any."""

    def __post_init__(self) -> None:
        if not (self.cap > 0 and 0 <= self.low <= self.high and self.kl >= 0):
            raise ConfigError(f"no such loss: cap {self.cap:g}, band {self.low:g} to {self.high:g}, kl {self.kl:g}")
        if self.max_lag is not None and self.max_lag < 0:
            raise ConfigError(f"a token is at least 0 versions behind, not {self.max_lag}")


class LossParts(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch's share of the loss."""

    loss: torch.Tensor
    """Scalar; the shares of a batch add up to its loss."""
    kl: float
    """The weighted k3 to the reference; 0.0 without one."""
    corrected: int
    """Tokens whose ratio was cut or masked."""
    late: int
    """Tokens that `max_lag` took out of the loss."""


def policy_loss(
    logprobs: torch.Tensor,
    batch: MicroBatch,
    rules: LossRules,
    *,
    reference: torch.Tensor | None = None,
    version: int | None = None,
) -> LossParts:
    """The loss of one micro-batch.

    `logprobs`: float32, shape (trained,), of the policy that is trained; the only input with a gradient. `reference`:
    the same of the reference policy. `version`: the trainer's, for `max_lag`. Raises `UsageError` where a correction
    lacks the engine's logprobs, and `ConfigError` where `kl` lacks a reference.
    """
    weights, late = _kept(batch, rules, version)
    ratios, corrected = _corrections(logprobs.detach(), batch, rules)
    loss = -(weights * ratios * batch.advantages * logprobs).sum()
    kl = 0.0
    if rules.kl:
        if reference is None:
            raise ConfigError("a KL term needs the reference's logprobs")
        apart = reference - logprobs
        divergence = (weights * (torch.expm1(apart) - apart)).sum()
        loss, kl = loss + rules.kl * divergence, float(divergence.detach())
    return LossParts(loss=loss, kl=kl, corrected=corrected, late=late)


def _kept(batch: MicroBatch, rules: LossRules, version: int | None) -> tuple[torch.Tensor, int]:
    """The weights, and how many tokens are too far behind to keep theirs."""
    if rules.max_lag is None:
        return batch.weights, 0
    if version is None:
        raise ConfigError("a bound on versions needs the trainer's own version")
    late = (batch.versions < 0) | (version - batch.versions > rules.max_lag)
    return batch.weights.masked_fill(late, 0.0), int(late.sum())


def _corrections(logprobs: torch.Tensor, batch: MicroBatch, rules: LossRules) -> tuple[torch.Tensor, int]:
    """c of each token, and for how many it is not their ratio."""
    if rules.correction is Correction.NONE:
        return torch.ones_like(logprobs), 0
    if bool(batch.behaviour.isnan().any()):
        raise UsageError(
            f"the correction '{rules.correction}' needs the engine's logprob of each trained token, and some have "
            f"none: record logprobs, or train with '{Correction.NONE}'"
        )
    ratios = torch.exp(logprobs - batch.behaviour)
    if rules.correction is Correction.TIS:
        return ratios.clamp(max=rules.cap), int((ratios > rules.cap).sum())
    outside = (ratios < rules.low) | (ratios > rules.high)
    return ratios.masked_fill(outside, 0.0), int(outside.sum())
