"""The record: nouns that every other room uses, and nothing else.

Rule: this room imports nothing of ours but `errors`, and holds no I/O, no clock and no asyncio.
"""

from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.call import Call, Finish, LogprobKind, Sampling
from rollbook.trace.ending import (
    Disposition,
    Drop,
    Ending,
    EndingKind,
    EndingRules,
    Fate,
    Mask,
    Penalize,
    Reason,
    Retry,
    RolloutFailure,
    Rule,
    Score,
)
from rollbook.trace.episode import (
    Episode,
    GroupKey,
    by_episode,
    by_group,
)
from rollbook.trace.graph import MessageGraph
from rollbook.trace.message import (
    Fault,
    Message,
    Origin,
    ParseStatus,
    Role,
    ToolCall,
    message_key,
)
from rollbook.trace.node import ROOT, Branch, Fork, ForkReason, Mark, Node, TokenIds
from rollbook.trace.protocols import MemorySink, Sink, TraceSource
from rollbook.trace.record import (
    Agent,
    ContextPolicy,
    Edge,
    EdgeLabel,
    ErrorNote,
    FinalState,
    NodeRef,
    PolicyRecord,
    Scoring,
    ScoringStatus,
    TimeSplit,
    TraceHead,
    TraceTail,
    TurnReward,
)
from rollbook.trace.redact import redact
from rollbook.trace.runs import (
    NO_RUNS,
    RunKind,
    Runs,
    compress_runs,
    expand_runs,
    make_runs,
    total_runs,
)
from rollbook.trace.sample import (
    LossReason,
    Sample,
    SampleSet,
    TokenLedger,
    samples,
)
from rollbook.trace.summary import Summary, summarise
from rollbook.trace.task import Task
from rollbook.trace.tools import ToolSpec
from rollbook.trace.trace import Trace

__all__ = [
    "NO_RUNS",
    "ROOT",
    "Agent",
    "Annotation",
    "Branch",
    "Call",
    "ContextPolicy",
    "Disposition",
    "Drop",
    "Edge",
    "EdgeLabel",
    "Ending",
    "EndingKind",
    "EndingRules",
    "Episode",
    "ErrorNote",
    "Fate",
    "Fault",
    "FinalState",
    "Finish",
    "Fork",
    "ForkReason",
    "GroupKey",
    "LogprobKind",
    "LossReason",
    "Mark",
    "Mask",
    "MemorySink",
    "Message",
    "MessageGraph",
    "Node",
    "NodeRef",
    "Origin",
    "ParseStatus",
    "Penalize",
    "PolicyRecord",
    "Reason",
    "Retry",
    "Role",
    "RolloutFailure",
    "Rule",
    "RunKind",
    "Runs",
    "Sample",
    "SampleSet",
    "Sampling",
    "Score",
    "Scoring",
    "ScoringStatus",
    "Sink",
    "Summary",
    "Task",
    "TimeSplit",
    "TokenIds",
    "TokenLedger",
    "ToolCall",
    "ToolSpec",
    "Trace",
    "TraceHead",
    "TraceSource",
    "TraceTail",
    "TurnReward",
    "by_episode",
    "by_group",
    "compress_runs",
    "expand_runs",
    "fold",
    "make_runs",
    "message_key",
    "redact",
    "samples",
    "summarise",
    "total_runs",
]
