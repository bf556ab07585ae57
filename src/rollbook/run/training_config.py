"""What a training is asked to do, and what its steps came to, as plain values. Nothing here needs torch."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.run.config import RunConfig
from rollbook.trace.facts import Mismatch

__all__ = ["CORRECTIONS", "StepRow", "TrainingConfig", "TrainingReport"]

CORRECTIONS = ("tis", "masked", "none")
"""Names of `rollbook.train.loss.Correction`, for whoever asks without torch."""


class TrainingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A training: so many steps, each from the rollouts of so many tasks."""

    run: RunConfig
    """The rollouts of one step: `tasks` groups of `group` rollouts. The run that is kept has all steps in it."""
    steps: int = 40
    lr: float = 5e-4
    """Of Adam."""
    correction: str = "tis"
    """One of `CORRECTIONS`."""
    kl: float = 0.0
    """Weight of the divergence from the model as it was; 0: none."""
    max_lag: int | None = None
    """The most versions that a trained token may be behind; None: any."""
    held_out: int = 0
    """Tasks that are never trained on; the policy is tried on them before the first and after the last step."""
    slots: int = 8
    """Sequences that the embedded engine decodes at once."""
    context_length: int = 1024
    """Tokens of prompt and reply together, for the embedded engine."""
    threads: int = 1
    """Of the embedded engine and of torch, each."""
    budget: int = 4096
    """Padded tokens that go through the model at once."""
    bfloat16: bool = False
    """Multiply matrices in it when training."""

    def __post_init__(self) -> None:
        counts = {"steps": self.steps, "slots": self.slots, "context_length": self.context_length}
        counts |= {"threads": self.threads, "budget": self.budget}
        if wrong := [name for name, count in counts.items() if count < 1]:
            raise ConfigError(f"a training needs at least 1 of '{wrong[0]}'")
        if self.lr <= 0 or min(self.held_out, self.kl, self.max_lag or 0) < 0:
            raise ConfigError("'lr' of a training is above 0, and 'held_out', 'kl' and 'max_lag' are not below it")
        if self.correction not in CORRECTIONS:
            raise ConfigError(f"no correction {self.correction!r}: use {', '.join(CORRECTIONS)}")
        if self.run.sampling.changes_distribution:
            raise ConfigError(
                "rollouts of a training are sampled from the model's own distribution: temperature 1, no top-k, top-p "
                "or min-p"
            )


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one step came to."""

    step: int
    version: int
    """Of the weights that learned."""
    reward: float | None
    """Mean of the votes; None: nobody votes."""
    votes: int
    """Rollouts that were trained from."""
    endings: dict[str, int]
    """Attempts by ``kind/reason`` of their ending."""
    calls: dict[str, int]
    """Attempted tool calls of the voters, by parse status. One reply that runs away may hold dozens."""
    turns: dict[str, int]
    """The voters' turns with attempted calls, each under `ok`, or under the first status of its own that is another."""
    well_formed: float | None
    """Share of the voters' turns with attempted calls in which every one is `ok`; None: no call was attempted."""
    tokens: int
    """Trained tokens."""
    loss: float
    norm: float | None
    """Length of the gradient; None: nothing to learn, no step was made."""
    kl: float
    corrected: int
    """Tokens whose importance ratio was cut or masked."""
    late: int
    """Tokens that `max_lag` took out of the loss."""
    lags: dict[int, int]
    """Trained tokens by how many versions they were behind; -1: not known."""
    mismatch: Mismatch
    """The engine's logprobs against the learner's, over the whole batch."""
    seconds: float
    """Wall time since the step before."""


class TrainingReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finished training. It lies beside the record, as ``training.json``."""

    config: dict[str, Any]
    steps: list[StepRow]
    """Those that were made: fewer than were asked for where groups were given up, for too few of them had votes."""
    held_out_start: float | None
    """Mean reward on the tasks that were kept out; None: none were."""
    held_out_end: float | None
    weights: str
    """The folder with the trained weights, beside the run's."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return json.loads(msgspec.json.encode(self))
