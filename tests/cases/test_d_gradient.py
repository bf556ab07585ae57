"""Reports about what entered training that never should have: once more, up to the gradient (D02, E12)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.rewards import advantages
from rollbook.rollout.breaker import Breaker, InfrastructureDown
from rollbook.trace import Reason, Trace, samples
from rollbook.train.learner import Learner, LearnerConfig
from rollbook.train.loss import Correction, LossRules
from tests.cases.case import report
from tests.export.build import end, start, turn
from tests.train.made import Toy, gradient, member, same, trained

PLAIN = LearnerConfig(loss=LossRules(correction=Correction.NONE))


def gradient_of(traces: list[Trace]) -> dict[str, np.ndarray]:
    model = Toy()
    Learner(model, PLAIN).gradient(trained(traces))
    return gradient(model)


@report("D02")
def test_lost_resets_never_reach_the_gradient(given: dict[str, Any]) -> None:
    """Three of four lost: the survivor is a group of one and teaches nothing; beside a sound group nothing changes."""
    group = [
        end(turn(start(f"r{at}"), (10 + at,)), Reason.ENV_SETUP, each["reward"])
        if "error" in each
        else member(f"r{at}", (10 + at,), each["reward"])
        for at, each in enumerate(given["group"])
    ]
    found = trained(group)
    assert [each.rollout for each in found] == ["r3"]
    assert found[0].advantage == 0.0
    model = Toy()
    before = {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
    assert Learner(model, PLAIN).step(found).norm is None
    assert same(before, {name: each.detach().numpy() for name, each in model.named_parameters()})
    beside = [member("s0", (20,), 1.0, group="sound"), member("s1", (21,), 0.0, group="sound")]
    assert same(gradient_of([*group, *beside]), gradient_of([group[3], *beside]))
    breaker = Breaker()
    for _ in range(1000):
        breaker.ended(Reason.ENV_SETUP)
    with pytest.raises(InfrastructureDown):
        breaker.check()


@report("E12")
def test_a_rollout_without_a_call_is_no_row_of_the_batch(given: dict[str, Any]) -> None:
    assert not given["trace_calls"]
    empty = end(start("empty"), Reason.HARNESS, given["synthetic_row"]["reward"])
    assert list(samples(empty)) == []
    real = [member("r0", (20, 21), 1.0), member("r1", (30,), 0.0)]
    assert same(gradient_of([real[0], empty, real[1]]), gradient_of(real))
    assert advantages([*real, empty]).values == advantages(real).values == {"r0": 0.5, "r1": -0.5}
    with pytest.raises(UsageError, match="nothing to learn from"):
        Learner(Toy(), PLAIN).step(trained([empty]))
