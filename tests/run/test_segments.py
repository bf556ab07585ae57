"""Turns that an engine aborts, over real runs on a fake server: one node, several segments, nothing lost or made up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan, Latency, LogEntry
from rollbook.rollout import Limits
from rollbook.rollout.loaded import derive_seed
from rollbook.run import RunConfig, run
from rollbook.store import RunReader
from rollbook.trace import Finish, Reason, Sampling, Trace
from tests.run.run_made import model_folder, renderer
from tests.storm.checks import problems_of
from tests.storm.lives import undisturbed
from tests.storm.world import NAME

TEXT = "right right right "


def ran(
    tmp_path: Path, *faults: Fault | None, stop: tuple[str, ...] = (), per_token: float = 0.0, **more: Any
) -> tuple[Trace, list[LogEntry], list[str]]:
    """The one rollout of a run whose first requests meet these faults, the log, and what is wrong."""
    folder = model_folder(tmp_path / "m")
    made = renderer(folder)
    reply = [*made.encode(TEXT).tolist(), *made.info.stop_ids]

    def says(prompt: Any, sampling: Sampling, session: str) -> list[int]:
        said = (length for length in range(len(reply) - 1, 0, -1) if list(prompt[-length:]) == reply[:length])
        return reply[next(said, 0) :]

    shape = EngineShape(stop_ids=tuple(made.info.stop_ids), decode=lambda ids: made.decode(np.asarray(ids, np.int32)))
    strikes = {number: fault for number, fault in enumerate(faults) if fault is not None}
    plan = FaultPlan(requests=strikes, sessions=undisturbed())
    latency = Latency(per_token=per_token)
    with FakeEngine(Dialect.VLLM, script=says, faults=plan, latency=latency, shape=shape) as engine:
        config = RunConfig(
            environment=NAME,
            policy=f"vllm:{engine.url}",
            tokenizer=str(folder),
            tasks=1,
            group=1,
            sampling=Sampling(stop=stop),
            **more,
        )
        asyncio.run(run(config, tmp_path / "run", start_jitter=0.0))
        log = [entry for entry in engine.log if entry.session and not entry.session.startswith("check")]
    (trace,) = RunReader(tmp_path / "run", strict=True).traces()
    return trace, log, problems_of(tmp_path / "run", config, log, (), ())


def test_an_aborted_turn_goes_on_as_one_node(tmp_path: Path) -> None:
    trace, log, problems = ran(tmp_path, Fault.ABORT, Fault.RESET, Fault.UPDATE)
    assert problems == []
    (turn,) = trace.policy_nodes
    node = trace.graph[turn]
    assert [call.finish for call in trace.calls] == [Finish.ERROR, Finish.ABORT, Finish.STOP]
    (first, half), (second, rest) = node.segments.tolist()
    assert (first, second, half + rest) == (1, 2, len(node.sampled_ids))
    own = derive_seed(0, "storm-0-0", 0, 0)
    assert [call.sampling.seed for call in trace.calls] == [derive_seed(own, at) for at in (1, 0, 2)]
    assert [entry.fields["sampling_params"]["seed"] for entry in log] == [derive_seed(own, at) for at in range(3)]
    assert [version for version, _ in node.versions.tolist()] == [0, 1]
    assert node.versions[0, 1] > half, "the update came within the second segment"
    assert trace.graph[turn].message.content == TEXT
    assert trace.ending is not None
    assert trace.ending.reason is Reason.FINAL_ANSWER


def test_an_abort_under_a_stop_string_asks_the_turn_again(tmp_path: Path) -> None:
    trace, log, _ = ran(tmp_path, Fault.ABORT, stop=("right r",))
    (turn,) = trace.policy_nodes
    assert [call.finish for call in trace.calls] == [Finish.ERROR, Finish.STOP_STRING]
    assert trace.calls[0].error == "aborted; a stop string or grammar does not carry over the cut"
    assert trace.graph[turn].segments.tolist() == [[1, len(trace.graph[turn].sampled_ids)]]
    assert trace.graph[turn].message.content == "right r"
    assert log[0].prompt_digest == log[1].prompt_digest
    assert log[0].token_ids, "what came of the first is not kept"


def test_a_deadline_within_a_continuation_keeps_what_came_before(tmp_path: Path) -> None:
    trace, log, _ = ran(tmp_path, Fault.ABORT, per_token=0.1, limits=Limits(deadline=1.2))
    (turn,) = trace.policy_nodes
    assert trace.ending is not None
    assert trace.ending.reason is Reason.DEADLINE
    assert trace.graph[turn].sampled_ids.tolist() == log[0].token_ids != []
    assert [call.finish for call in trace.calls] == [Finish.ERROR, Finish.ABORT]
    assert log[1].cancelled
    assert trace.reward == 1.0, "scored on what is there"
