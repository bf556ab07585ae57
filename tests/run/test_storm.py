"""A storm of faults: 2,000 rollouts, every fault of the engine, a killed worker, a killed run, and its resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollbook.policy.testing import Fault, LogEntry
from rollbook.rollout import GroupRules, Limits
from rollbook.run import RunConfig
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Fate, Reason, Retry, facts
from tests.run.run_made import model_folder
from tests.storm.checks import problems_of
from tests.storm.engine import storm_engine
from tests.storm.lives import Storm, every_fault
from tests.storm.log import read_log, state_of
from tests.storm.world import NAME

GROUPS, SIZE = 250, 8
SLOW = 6.0


def connections_to(port: int) -> int:
    """Open connections of clients."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_a_storm_of_faults_leaves_a_right_record_and_nothing_running(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    with storm_engine(every_fault(7, slow=SLOW), folder) as url:
        config = RunConfig(
            environment=NAME,
            options={"sandboxes": True},
            policy=f"vllm:{url}",
            tokenizer=str(folder),
            tasks=GROUPS,
            group=SIZE,
            limits=Limits(request_retries=1),
            request_timeout=SLOW / 2,
            rules=EndingRules().override({Reason.ENGINE_CONTRACT: Retry(1)}),
            groups=GroupRules(refill=1),
        )
        storm = Storm(tmp_path / "run", config, tmp_path / "temporary")
        assert storm.live(kill_worker_at=GROUPS * SIZE // 4, kill_at=GROUPS * SIZE // 2) < 0
        assert not storm.wait_for_orphans(20)
        assert storm.live() == 0
        assert not storm.wait_for_orphans(0)
        log = read_log(url)
        (tmp_path / "log.json").write_bytes(msgspec.json.encode((log, storm.told)))  # for whoever looks for a cause
        assert state_of(url)["running"] == 0
        assert connections_to(int(url.rpartition(":")[2])) == 0
        assert [each.name for each in storm.temporary.rglob("*") if each.is_file()] == []
        assert problems_of(storm.folder, config, log, storm.told, storm.began) == []
    assert {entry.fault for entry in log if entry.session} == {None, *Fault}
    reasons = Counter(row.reason for row in RunReader(storm.folder).summaries())
    assert {Reason.FINAL_ANSWER, Reason.ENGINE_CONTRACT, Reason.ENGINE_UNREACHABLE, Reason.INTERRUPTED} <= set(reasons)
    assert reasons[Reason.INTERRUPTED] <= 2 * storm.concurrency
    assert Fate.DROPPED in {each.fate for each in facts.dispositions(RunReader(storm.folder).annotations()).values()}
    wrong = tampered(storm.folder, log)
    found = problems_of(storm.folder, config, wrong, [*storm.told, (storm.told[0][0], "deadline")], storm.began)
    for said in NOTICED:
        assert any(said in each for each in found), said


NOTICED = (
    "calls, and the engine saw",
    "its ids are not those",
    "its prompt is not",
    "versions",
    "stands with",
    "tries",
    "ended as deadline",
)


def tampered(folder: Path, log: Sequence[LogEntry]) -> list[LogEntry]:
    """The log with one thing wrong in each of some rollouts, for checks that notice nothing check nothing."""
    fine = [row.rollout for row in RunReader(folder).summaries() if row.reason is Reason.FINAL_ANSWER]
    first = {entry.session: entry for entry in reversed(log) if entry.fault is None}
    gone, ids, prompt, versions, fault, tries = [first[each] for each in fine if each in first][:6]
    changed = {
        id(ids): {"token_ids": [1, *ids.token_ids[1:]]},
        id(prompt): {"prompt_digest": "0"},
        id(versions): {"versions": [("step-9999", len(versions.token_ids))]},
        id(fault): {"fault": Fault.NAN},
    }
    kept = [msgspec.structs.replace(entry, **changed.get(id(entry), {})) for entry in log if entry is not gone]
    return [msgspec.structs.replace(tries, fault=Fault.BUSY), *kept]
