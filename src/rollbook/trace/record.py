"""What stands in a trace beside its messages: head, tail, edges, and the values in them.

Rules: plain data only. Resolved configurations are stored as plain data, so reading a trace loads nothing else; what
is not known is None or empty, as each field says, and never zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from rollbook.trace.ending import Ending
from rollbook.trace.task import Task
from rollbook.trace.tools import ToolSpec

__all__ = [
    "Agent",
    "ContextPolicy",
    "Edge",
    "EdgeLabel",
    "ErrorNote",
    "FinalState",
    "NodeRef",
    "PolicyRecord",
    "Scoring",
    "ScoringStatus",
    "TimeSplit",
    "TraceHead",
    "TraceTail",
    "TurnReward",
]


class ContextPolicy(StrEnum):
    """How earlier turns stand in later prompts."""

    KEEP = "keep"
    """Sampled ids stay as they are."""
    TEMPLATE = "template"
    """Re-rendered as the template would."""


class EdgeLabel(StrEnum):
    """The known links that imply no token prefix."""

    SUBAGENT_CALL = "subagent_call"
    SUBAGENT_RETURN = "subagent_return"
    COMPACTION = "compaction"
    """From the summary that was accepted to the message that the shorter history begins with."""
    COMPACTION_ATTEMPT = "compaction_attempt"
    """From a summary that was tried to what it sums up. Without a `compaction` from it the attempt was rejected."""
    REWRITE_OF = "rewrite_of"
    SIDE_REQUEST = "side_request"
    JUDGED_BY = "judged_by"
    CONTINUED = "continued"


class ScoringStatus(StrEnum):
    """Whether a reward can be had."""

    SCORED = "scored"
    """The scorer gave its rewards."""
    FAILED = "failed"
    """The scorer failed: no reward, no vote."""
    PENDING = "pending"
    """Not scored yet, or nothing to score."""


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who acts in this rollout."""

    name: str = "agent"
    seat: str = "solver"
    """The role within the episode."""
    trainable: bool = True
    """False: its tokens are never trained."""


class PolicyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row of the policy table."""

    name: str
    """In the grammar of policy names, e.g. ``local:smollm2-135m``."""
    engine: str = ""
    """The engine and its version; empty: not known."""
    tokenizer_hash: str = ""
    """sha256 of the tokenizer's bytes in hex; empty: not known."""
    template_hash: str = ""
    """sha256 of the chat template's text in hex; empty: there is none."""
    weights_hash: str = ""
    """sha256 of the file with the weights in hex; empty: not known."""
    trainable: bool = True
    """False: its tokens are never trained."""
    tool_prompt: str | None = None
    """The explicit tool prompt in use, by name and hash; None: the template renders tools itself, or there are
    none."""
    template_findings: tuple[str, ...] = ()
    """What a trainer must know of the chat template, e.g. ``reasoning=dropped``; empty: nothing, or not known."""
    template_settings: dict[str, Any] = {}
    """What was set of the chat template beside its text, by name: ``date``, ``variables``, ``call_format``; empty:
    nothing, or not known."""


class NodeRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node, possibly of another trace of the episode."""

    node: int
    rollout: str | None = None
    """None: this trace."""


class Edge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A typed link that implies no token prefix. Unknown labels from a harness are kept."""

    label: str
    """An `EdgeLabel`, or a harness's own word."""
    source: NodeRef
    """Where the link starts; for `rewrite_of` it is the new message."""
    target: NodeRef
    detail: str = ""


class FinalState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a scorer needs to score again without running again."""

    text: str | None = None
    """The answer or final screen; None where there is none."""
    data: Any = None
    """State as plain JSON data."""
    files: dict[str, str] = {}
    """Files by path, as ``sha256:...``; the files themselves are not in the record."""


class TurnReward(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reward that belongs to one turn."""

    node: int
    """The assistant node of the turn."""
    value: float


class Scoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a reward can be had, and why not."""

    status: ScoringStatus = ScoringStatus.PENDING
    reason: str = ""
    """Why it failed; empty otherwise."""


class ErrorNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that went wrong, kept whether or not it decided the ending."""

    where: str
    """The part that failed: ``cleanup``, ``store``, ``agent`` ..."""
    text: str


class TimeSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Wall seconds of a rollout along its critical path; the parts add up to `wall`. None: not known."""

    wall: float
    engine: float = 0.0
    tool: float = 0.0
    sandbox: float = 0.0
    """Environment and sandbox set-up."""
    cpu: float = 0.0
    """Render, parse, commit."""
    scoring: float = 0.0
    cleanup: float = 0.0
    limiter: float = 0.0
    """Waiting for a limiter: engine slot, tool, sandbox, judge."""
    other: float = 0.0
    engine_queue: float | None = None
    """Part of `engine`, where the engine reports it. Likewise below."""
    engine_prefill: float | None = None
    engine_decode: float | None = None
    overlapped: float = 0.0
    """Seconds that ran beside the critical path (parallel tools); not part of `wall`."""


class TraceHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known when a rollout starts."""

    rollout: str
    """Unique over all runs; shared by all samples of the trace."""
    group: str
    """The scheduled task's group id: members of one group and seat are compared with each other."""
    task: Task
    agent: Agent = Agent()
    policies: tuple[PolicyRecord, ...]
    """The policy table; calls name its rows by index."""
    run: str = ""
    """The run's id; empty outside of one."""
    episode: str = ""
    """Rollouts that belong together; empty: the rollout is alone."""
    member: int = 0
    """Place within the group."""
    attempt: int = 0
    """0 for the first try of this member; two attempts are never spliced."""
    environment: str = ""
    """By name; empty: not known."""
    tools: tuple[ToolSpec, ...] = ()
    """What was offered."""
    tools_rendered: bool | None = None
    """Whether the tools stand in the prompt's tokens; None: not known (text-only engines)."""
    context_policy: ContextPolicy = ContextPolicy.KEEP
    config: dict[str, Any] = {}
    """Resolved configurations as plain tagged data."""
    started: float | None = None
    """Unix seconds."""
    tokens: bool = True
    """False: the engine gave no token ids (``tokens: absent``); the trace cannot be trained from."""


class TraceTail(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known when a rollout stopped."""

    ending: Ending | None = None
    """None while it runs."""
    final_state: FinalState | None = None
    """None: the messages tell all."""
    reward: float | None = None
    """None: no reward, which is not zero."""
    reward_parts: dict[str, float] = {}
    """What the reward is made of, by name."""
    turn_rewards: tuple[TurnReward, ...] = ()
    """In the order in which they were given."""
    scoring: Scoring = Scoring()
    metrics: dict[str, float] = {}
    """Numbers for people; never part of the reward."""
    times: TimeSplit | None = None
    """None: not measured."""
    errors: tuple[ErrorNote, ...] = ()
    """In the order in which they came."""
    finished: float | None = None
    """Unix seconds."""
