"""What was selected, counted from the record: groups, and attempts by task, length, tool and version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollbook.policy import Completion, TokenIds
from rollbook.rollout import GroupRules
from rollbook.rollout.staleness import StalenessBound
from rollbook.run import GroupFacts, RunConfig, open_run, selection, standing
from rollbook.trace import EndingRules, Reason, Retry, RolloutFailure, Sampling
from tests.rollout.made import says
from tests.run.test_runner import CONFIG, ByMember, go
from tests.run.test_stream import TWO, Trainee, everything, stream, three_versions


def groups(folder: Path) -> GroupFacts:
    return selection(open_run(folder)).groups


def expected(**more: int) -> GroupFacts:
    zero = dict.fromkeys(GroupFacts.__struct_fields__, 0)
    return GroupFacts(**{**zero, **more})


class Flat(ByMember):
    """Everybody is right in the first `flat` groups."""

    def __init__(self, flat: int) -> None:
        super().__init__()
        self.flat = flat

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        said = await super().sample(prompt, sampling, session=session)
        return says("right") if int(session.split("-")[1]) < self.flat else said


def test_a_plain_run_closes_its_groups(tmp_path: Path) -> None:
    go(tmp_path / "run")
    assert groups(tmp_path / "run") == expected(groups=3, closed=3)


def test_groups_without_a_signal_are_counted_and_replaced_also_by_a_resume(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, groups=GroupRules(resample=2))
    go(tmp_path / "run", Flat(1), config)
    assert groups(tmp_path / "run") == expected(groups=4, closed=4, zero_variance=1, resampled=1)
    found = standing(open_run(tmp_path / "run"))
    assert found is not None
    assert (found.planned, found.finished, found.groups, found.closed, found.missing) == (16, 16, 4, 4, 0)
    engine = Flat(1)
    go(tmp_path / "run", engine, config, resume=True)
    assert engine.requests == []
    assert groups(tmp_path / "run").groups == 4


def test_the_cap_of_further_tasks_holds_over_a_resume(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, groups=GroupRules(resample=2))
    for resume in (False, True):
        go(tmp_path / "run", Flat(9), config, resume=resume)
        assert groups(tmp_path / "run") == expected(groups=5, closed=5, zero_variance=5, resampled=2)


class Loses(ByMember):
    """The engine is gone for member 1, whatever the attempt."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        said = await super().sample(prompt, sampling, session=session)
        if session.rpartition("-")[2].startswith("1"):
            raise RolloutFailure(Reason.ENGINE_CONTRACT, "as told")
        return said


def test_refills_and_retries_are_counted(tmp_path: Path) -> None:
    rules = EndingRules({Reason.ENGINE_CONTRACT: Retry(1)})
    config = msgspec.structs.replace(CONFIG, rules=rules, groups=GroupRules(refill=1), breaker=CONFIG.breaker)
    go(tmp_path / "run", Loses(), config)
    found = selection(open_run(tmp_path / "run"))
    assert found.groups == expected(groups=3, closed=3, refilled=3)
    assert (found.whole.used, found.whole.retried, found.whole.dropped, found.whole.refills) == (12, 3, 3, 3)
    assert found.whole.attempts == 18
    whole = standing(open_run(tmp_path / "run"))
    assert whole is not None
    assert (whole.planned, whole.finished, whole.missing) == (12, 12, 0)


def test_what_the_bound_takes_is_in_the_ledger(tmp_path: Path) -> None:
    engine = Trainee(lambda session: int(session.split("-")[1][:4]) == 0)
    stream(tmp_path / "run", engine, lambda opened: three_versions(opened, engine), bound=StalenessBound(most=2))
    found = selection(open_run(tmp_path / "run"))
    assert found.groups == expected(groups=2, closed=2, empty=2, stale=4)
    assert (found.whole.stale, found.whole.used) == (4, 0)
    by_version = {row.value: row.stale for row in found.rows if row.facet == "version"}
    assert by_version == {"0": 2}  # the others were cut off before their first token
    assert found.to_dict()["groups"]["stale"] == 4


def test_the_rounds_of_a_stream_are_planned(tmp_path: Path) -> None:
    config: RunConfig = TWO
    stream(tmp_path / "run", Trainee(), everything, config=config, rounds=3)
    found = standing(open_run(tmp_path / "run"))
    assert found is not None
    assert (found.planned, found.finished, found.groups, found.closed) == (12, 12, 6, 6)
