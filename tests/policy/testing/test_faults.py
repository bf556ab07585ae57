from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.policy.testing import Dialect, Fault, FaultPlan

VLLM = Dialect.VLLM


@given(seed=st.integers(0, 2**40), session=st.text(max_size=8), number=st.integers(0, 1000))
def test_a_fault_depends_on_seed_session_and_number_alone(seed: int, session: str, number: int) -> None:
    rates = {fault: 1 / len(Fault) for fault in Fault}
    first, second = FaultPlan(seed=seed, rates=rates), FaultPlan(seed=seed, rates=dict(reversed(rates.items())))
    assert first.fault(session, number, VLLM) is second.fault(session, number, VLLM)


def test_rates_are_kept_to() -> None:
    plan = FaultPlan(rates={Fault.BUSY: 0.2, Fault.NAN: 0.1})
    found = Counter(plan.fault(f"s{each}", number, VLLM) for each in range(500) for number in range(10))
    assert 900 < found[Fault.BUSY] < 1100
    assert 400 < found[Fault.NAN] < 600
    assert found[Fault.BUSY] + found[Fault.NAN] + found[None] == 5000


def test_another_seed_strikes_elsewhere() -> None:
    plans = [FaultPlan(seed=seed, rates={Fault.BUSY: 0.5}) for seed in (0, 1)]
    first, second = [[plan.fault("s", number, VLLM) for number in range(40)] for plan in plans]
    assert first != second


def test_a_session_comes_before_a_number_and_that_before_a_rate() -> None:
    plan = FaultPlan(
        rates={Fault.BUSY: 1.0}, requests={0: Fault.NAN, 3: Fault.RESET}, sessions={"a": [None, Fault.SLOW]}
    )
    assert [plan.fault("a", number, VLLM) for number in range(4)] == [None, Fault.SLOW, Fault.BUSY, Fault.RESET]
    assert [plan.fault("b", number, VLLM) for number in range(2)] == [Fault.NAN, Fault.BUSY]


def test_a_drawn_fault_that_a_dialect_cannot_have_does_nothing() -> None:
    plan = FaultPlan(rates={Fault.ABORT: 1.0})
    assert plan.fault("s", 0, VLLM) is Fault.ABORT
    assert plan.fault("s", 0, Dialect.LLAMACPP) is None


@pytest.mark.parametrize(
    "plan", [FaultPlan(requests={0: Fault.UPDATE}), FaultPlan(sessions={"s": [None, Fault.ABORT]})]
)
def test_a_planned_fault_that_a_dialect_cannot_have_is_refused(plan: FaultPlan) -> None:
    plan.check(Dialect.SGLANG)
    with pytest.raises(UsageError, match="llamacpp has no such fault"):
        plan.check(Dialect.LLAMACPP)


@pytest.mark.parametrize("rates", [{Fault.BUSY: 0.7, Fault.NAN: 0.4}, {Fault.BUSY: -0.1}])
def test_rates_are_shares(rates: dict[Fault, float]) -> None:
    with pytest.raises(UsageError, match="shares of all requests"):
        FaultPlan(rates=rates)
