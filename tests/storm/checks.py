"""Holds the record of a run against what its engine wrote down. Each check gives its problems as lines.

Rules. Every attempt ended as its faults say; every request that the engine saw is in the record, once, with as many
tries as the engine counts, and with the prompt, ids and versions that the engine has; but for attempts that a kill cut
off, whose last request may be missing. Every member has one attempt that counts or was dropped when its retries were
used up; every group closed once. Nothing is there that the engine never saw.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rollbook.policy.testing import Fault, LogEntry, prompt_digest
from rollbook.policy.versions import version_of
from rollbook.rollout.loaded import derive_seed
from rollbook.run import RunConfig
from rollbook.store import RecoveryReport, RunReader
from rollbook.store.notes import read_annotations
from rollbook.trace import Call, EndingKind, Fate, Finish, Reason, Retry, Trace, facts
from rollbook.trace.runs import expand_runs
from tests.storm.log import Came, Served, served
from tests.storm.world import turns_of

__all__ = ["problems_of"]


def problems_of(
    folder: Path,
    config: RunConfig,
    log: Sequence[LogEntry],
    told: Sequence[tuple[str, str]],
    began: Sequence[float],
) -> list[str]:
    """Everything that is wrong. `told`: rollout and reason of each attempt that a life said had ended. `began`: when
    each life began."""
    reader = RunReader(folder, strict=True)
    traces = {trace.id: trace for trace in reader.traces()}
    asked = served(log)
    found = [f"{rollout} stands {n} times" for rollout, n in _counts(reader).items() if n > 1]
    found += [f"{rollout} was asked for, and is not recorded" for rollout in asked.keys() - traces.keys()]
    for rollout, reason in told:
        trace = traces.get(rollout)
        if trace is None or trace.ending is None or trace.ending.reason != reason:
            found.append(f"{rollout} ended as {reason}, and stands as {trace and trace.ending}")
    for trace in traces.values():
        found += [f"{trace.id}: {each}" for each in _trace_problems(trace, config, asked.get(trace.id, ()))]
    found += _member_problems(traces, config, asked, reader, began)
    return [*found, *_group_problems(folder, config, traces)]


def _counts(reader: RunReader) -> Counter[str]:
    return Counter(row.rollout for row in reader.summaries())


# One attempt


def _trace_problems(trace: Trace, config: RunConfig, requests: Sequence[Served]) -> Iterator[str]:
    ending, head = trace.ending, trace.head
    if ending is None:
        yield "it has no ending"
        return
    killed = ending.reason is Reason.INTERRUPTED
    calls = {call.sampling.seed: (at, call) for at, call in enumerate(trace.calls)}
    if len(calls) != len(trace.calls):
        yield "two of its calls have one seed"
    own = derive_seed(config.seed, head.task.id, head.member, head.attempt)
    seeds = [derive_seed(own, at) for at in range(max(len(calls), len(requests)))]
    if [each.seed for each in requests] != seeds[: len(requests)]:
        yield "the seeds of its requests are not those of its calls, in order"
    if not calls.keys() <= set(seeds):
        yield "a call has a seed of no request"
    for at, request in enumerate(requests):
        last = at == len(requests) - 1
        if request.seed in calls:
            yield from _call_problems(trace, *calls[request.seed], request, may_be_cut=killed and last)
        elif not killed or not (last or _cut_turn(requests[at:])):
            yield f"request {at} ({request.last.fault}) is not in its record"
    if not killed and len(calls) != len(requests):
        yield f"{len(calls)} calls, and the engine saw {len(requests)}"
    yield from _ending_problems(trace, requests)


def _cut_turn(requests: Sequence[Served]) -> bool:
    """Aborted segments and failures of one turn, which a kill took before the turn was kept."""
    return all(each.came is not Came.FINE or each.last.fault is Fault.ABORT for each in requests[:-1])


def _call_problems(trace: Trace, at: int, call: Call, request: Served, *, may_be_cut: bool) -> Iterator[str]:
    entry, came = request.last, request.came
    if may_be_cut and call.error is not None:
        return
    if call.tries != len(request.entries):
        yield f"call {at} took {call.tries} tries, and the engine saw {len(request.entries)}"
    if any(each.fault not in (Fault.BUSY, Fault.BUSY_LATER, Fault.UNAVAILABLE) for each in request.entries[:-1]):
        yield f"call {at}: asked again with the same seed behind {[each.fault for each in request.entries]}"
    if (call.error is None) != (came is Came.FINE):
        yield f"call {at} met {entry.fault}, and stands with {call.error or call.finish}"
    if call.error is None and came is Came.FINE:
        yield from _reply_problems(trace, at, call, entry)


def _reply_problems(trace: Trace, at: int, call: Call, entry: LogEntry) -> Iterator[str]:
    expected = Finish.ABORT if entry.finish == "abort" else Finish.STOP  # a whole one cannot be aborted any more
    if call.finish is not expected or call.completion_tokens != len(entry.token_ids):
        yield f"call {at}: {call.finish} with {call.completion_tokens} ids, not {expected} with {len(entry.token_ids)}"
    if call.node is None:
        if entry.token_ids:
            yield f"call {at} has ids and no node"
        return
    node = trace.graph[call.node]
    sampled = node.sampled_ids
    start = 0
    for segment, count in node.segments.tolist():
        if segment == at:
            break
        start += count
    scaffold = node.token_ids[: len(node.token_ids) - len(sampled)]
    before = trace.graph.path_ids(call.after) if call.after >= 0 else np.array([], np.int32)
    prompt = np.concatenate((before, scaffold, sampled[:start]))
    if sampled[start : start + len(entry.token_ids)].tolist() != entry.token_ids:
        yield f"call {at}: its ids are not those of the engine"
    if prompt_digest(prompt.tolist()) != entry.prompt_digest:
        yield f"call {at}: its prompt is not what the engine got"
    versions = expand_runs(node.versions).tolist()
    mine = [version_of(label) for label, count in entry.versions for _ in range(count)]
    if versions[start : start + len(mine)] != mine:
        yield f"call {at}: versions {versions}, and the engine gave {entry.versions} from token {start} on"


def _ending_problems(trace: Trace, requests: Sequence[Served]) -> Iterator[str]:
    ending = trace.ending
    assert ending is not None
    last = requests[-1].came if requests else None
    if any(each.came is Came.CONTRACT for each in requests[:-1]):
        yield "it went on behind a broken contract"
    if any(each.came in (Came.BUSY, Came.LEFT) for each in requests[:-1]):
        yield "it went on behind a request that came to nothing"
    match ending.reason:
        case Reason.INTERRUPTED:
            return
        case Reason.FINAL_ANSWER:
            if last is not Came.FINE or len(trace.policy_nodes) != turns_of(trace.head.task.id):
                yield f"it ended as an answer behind {last} and {len(trace.policy_nodes)} turns"
        case reason:
            if last is None or last.reason is not reason:
                yield f"it ended as {reason} behind {last}"


# Members and groups


def _member_problems(
    traces: Mapping[str, Trace],
    config: RunConfig,
    asked: Mapping[str, Sequence[Served]],
    reader: RunReader,
    began: Sequence[float],
) -> Iterator[str]:
    fates = facts.dispositions(reader.annotations())
    members = defaultdict[tuple[str, int], list[Trace]](list)
    for trace in traces.values():
        members[trace.head.group, trace.head.member].append(trace)
    groups = Counter(group for group, _ in members)
    if len(groups) != config.tasks:
        yield f"{len(groups)} groups of {config.tasks}"
    given_up = Counter(trace.head.group for trace in traces.values() if fates[trace.id].fate is Fate.DROPPED)
    for group, size in groups.items():
        if size != config.group + min(config.groups.refill, given_up[group]):
            yield f"{group}: {size} members, of which {given_up[group]} were dropped"
    for place, attempts in members.items():
        attempts.sort(key=lambda each: each.head.attempt)
        if [each.head.attempt for each in attempts] != list(range(len(attempts))):
            yield f"{place}: attempts {[each.head.attempt for each in attempts]}"
        for trace in attempts[:-1]:
            if fates[trace.id].fate is not Fate.RETRIED:
                yield f"{trace.id}: {fates[trace.id]}, though another attempt followed"
        yield from (f"{place}: {each}" for each in _last_problems(attempts, config, fates[attempts[-1].id].fate))
        yield from (f"{place}: {each}" for each in _budget_problems(attempts, config, asked, began))


def _last_problems(attempts: Sequence[Trace], config: RunConfig, fate: Fate) -> Iterator[str]:
    reasons = [each.ending.reason for each in attempts if each.ending is not None]
    last = reasons[-1]
    if last.kind is not EndingKind.ERROR:
        if fate is not Fate.USED:
            yield f"its last attempt ended as {last} and is {fate}"
        return
    rule = config.rules.rule(last)
    retries = rule.times if isinstance(rule, Retry) else 0
    if fate is not Fate.DROPPED or reasons.count(last) <= retries:
        yield f"given up as {fate} behind {reasons}"


def _budget_problems(
    attempts: Sequence[Trace], config: RunConfig, asked: Mapping[str, Sequence[Served]], began: Sequence[float]
) -> Iterator[str]:
    """Request retries: used up before an attempt ends by what can be retried, and never more than there are. A killed
    worker forgets what was used of them since the attempt began, a killed run since it did."""
    whole = config.limits.request_retries
    budgets, before = {whole}, float("inf")
    for trace in attempts:
        started = trace.head.started or 0.0
        if any(before < each <= started for each in began):
            budgets.add(whole)
        before = started
        came = [each.came for each in asked.get(trace.id, ())]
        failed = sum(each in (Came.UNREACHABLE, Came.TIMEOUT) for each in came)
        assert trace.ending is not None
        reason = trace.ending.reason
        if reason is Reason.INTERRUPTED:
            if failed > max(budgets) + 1:
                yield f"{trace.id} failed {failed} times in transit, with retries {budgets}"
            budgets |= {max(0, each - failed) for each in budgets}
        elif reason in (Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT):
            if failed - 1 not in budgets:
                yield f"{trace.id} ended as {reason} behind {failed} failures, with retries {budgets}"
            budgets = {0}
        else:
            budgets = {each - failed for each in budgets if each >= failed}
            if not budgets:
                yield f"{trace.id} failed {failed} times in transit and went on, with too few retries"
                return


def _group_problems(folder: Path, config: RunConfig, traces: Mapping[str, Trace]) -> Iterator[str]:
    notes = [note for note in read_annotations(folder, RecoveryReport()) if note.name == "advantage"]
    yield from (f"{rollout} was closed {n} times" for rollout, n in Counter(n.rollout for n in notes).items() if n > 1)
    given = facts.advantages(notes)
    yield from (f"{rollout} has no place in its group" for rollout in traces.keys() - given.keys())
    scored = {trace.id: trace.reward for trace in traces.values() if trace.reward is not None}
    for group in {(each.group, each.scheduled, each.used): each for each in given.values()}.values():
        votes = {rollout: scored[rollout] for rollout in group.members if rollout in scored}
        mean = sum(votes.values()) / max(len(votes), 1)
        values = {rollout: vote - mean for rollout, vote in votes.items()}
        if (group.scheduled, group.used, group.values) != (config.group, len(votes), values):
            yield f"{group.group}: {group.used} of {group.scheduled} used, values {group.values}, votes {votes}"
