"""The table of checks: name, what it counts, the limit that holds unless the gate says otherwise, and its sentences.

Rules: what must be 0 has the limit 0; rates have a limit only where one holds for every run; all limits are upper
limits. A new check is a probe in a module of its own and one row here. What is misaligned breaks the first check and is
kept from the probes that read tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollbook.audit import endings, parsing
from rollbook.audit.baseline import BaselineErrors
from rollbook.audit.begin import BeginTokens
from rollbook.audit.context import ReasoningKept
from rollbook.audit.control import ControlFromText, ControlInContent, ControlSpelled
from rollbook.audit.drift import Drift
from rollbook.audit.duplicates import DuplicateIds, DuplicateTokens
from rollbook.audit.endings import EndingMix, RolloutRate
from rollbook.audit.execution import ExecutedAfterFault
from rollbook.audit.groups import GroupSizes, ZeroVariance
from rollbook.audit.ledger import TokensLost
from rollbook.audit.logprobs import Aligned, LogprobKinds, LogprobsAbsent, Rescored
from rollbook.audit.markers import MarkersInContent
from rollbook.audit.measure import Evidence, Findings, Probe
from rollbook.audit.mismatch import TrainerMismatch
from rollbook.audit.parsing import ParseRate
from rollbook.audit.prompts import PromptTokens
from rollbook.audit.report import Unit
from rollbook.audit.selection import Selection, StaleDropped, StalestUsed
from rollbook.audit.separators import Separators
from rollbook.audit.template import TemplateDrift
from rollbook.audit.tools import ToolsUnrendered
from rollbook.audit.versions import VersionSpan
from rollbook.audit.votes import NoVote

__all__ = ["CHECKS", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One check."""

    name: str
    probe: Callable[[Findings, Evidence], Probe]
    unit: Unit
    of: str
    limit: float | None
    """The default limit; None: no limit."""
    means: str
    """What the value counts, so that ``No ...`` and ``Too many ...`` read well."""
    remedy: str
    """What to do where it is too high."""
    reads_tokens: bool = False
    """True where the probe needs aligned columns; a misaligned trace is not shown to it."""
    needs_renderer: bool = False
    """True where nothing is judged without the run's renderer."""


CHECKS: tuple[Row, ...] = (
    Row(
        "alignment",
        lambda findings, _: Aligned(findings),
        Unit.COUNT,
        "sampled tokens",
        0,
        "breaks between ids, masks, logprobs and segments",
        "do not train from these traces: the record is damaged or was made by something else",
    ),
    Row(
        "executed_after_fault",
        lambda findings, _: ExecutedAfterFault(findings),
        Unit.COUNT,
        "tool results",
        0,
        "results of calls that must not have run",
        "fix the harness: only a well-formed call of a finished turn executes",
    ),
    Row(
        "baseline_errors",
        BaselineErrors,
        Unit.COUNT,
        "baseline members",
        0,
        "rollouts in a group's baseline that have no vote",
        "compute the advantages again, after the ending rules",
    ),
    Row(
        "duplicate_ids",
        lambda findings, _: DuplicateIds(findings),
        Unit.COUNT,
        "rollouts",
        0,
        "rollouts whose id is there twice",
        "keep one of them: it would be trained twice",
    ),
    Row(
        "tools_unrendered",
        lambda findings, _: ToolsUnrendered(findings),
        Unit.COUNT,
        "rollouts with tools",
        0,
        "rollouts whose tools never reached the prompt",
        "use a template that renders tools, or an explicit tool prompt",
    ),
    Row(
        "prompt_tokens",
        lambda findings, _: PromptTokens(findings),
        Unit.COUNT,
        "calls",
        0,
        "engine calls whose prompt is not what the record holds",
        "send the stored ids as they are, and look for a second begin token or a cut prompt",
        reads_tokens=True,
    ),
    Row(
        "logprob_kind",
        lambda findings, _: LogprobKinds(findings),
        Unit.SHARE,
        "logprobs",
        0,
        "logprobs that are not of the distribution that was sampled",
        "sample at temperature 1 without truncation, or ask the engine for processed logprobs",
        reads_tokens=True,
    ),
    Row(
        "logprobs_absent",
        lambda findings, _: LogprobsAbsent(findings),
        Unit.SHARE,
        "sampled tokens",
        0,
        "sampled tokens without a logprob",
        "ask the engine for the logprob of each sampled token",
        reads_tokens=True,
    ),
    Row(
        "rescored",
        lambda findings, _: Rescored(findings),
        Unit.SHARE,
        "logprobs",
        None,
        "logprobs from a second request",
        "use an engine that returns all of them",
        reads_tokens=True,
    ),
    Row(
        "drift",
        lambda findings, evidence: Drift(findings, evidence.reencoder),
        Unit.SHARE,
        "turns",
        None,
        "turns that would have come back as other ids, had their text been encoded again",
        "the stored ids are right, never train from re-encoded text",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "reasoning_kept",
        lambda findings, _: ReasoningKept(findings),
        Unit.SHARE,
        "rollouts with reasoning",
        None,
        "rollouts sampled with earlier reasoning in context that the policy's chat template drops",
        "sample under the context policy template, or deploy the policy with its reasoning kept",
    ),
    Row(
        "malformed",
        lambda findings, _: ParseRate(findings, parsing.MALFORMED),
        Unit.SHARE,
        "attempted calls",
        None,
        "attempted calls that are not well-formed",
        "read some of them: the parser and the model may not speak the same format",
    ),
    Row(
        "bad_arguments",
        lambda findings, _: ParseRate(findings, parsing.BAD_ARGUMENTS),
        Unit.SHARE,
        "attempted calls",
        None,
        "attempted calls whose arguments do not fit the schema",
        "read some of them: the description of the tool may mislead",
    ),
    Row(
        "unknown_tool",
        lambda findings, _: ParseRate(findings, parsing.UNKNOWN_TOOL),
        Unit.SHARE,
        "attempted calls",
        None,
        "attempted calls of tools that were not offered",
        "read some of them: the tools in the prompt may not be those of the environment",
    ),
    Row(
        "inside_reasoning",
        lambda findings, _: ParseRate(findings, parsing.INSIDE_REASONING),
        Unit.SHARE,
        "attempted calls",
        None,
        "attempted calls written inside reasoning, which never run",
        "look whether the model closes its reasoning block",
    ),
    Row(
        "cut_calls",
        lambda findings, _: ParseRate(findings, parsing.CUT),
        Unit.SHARE,
        "attempted calls",
        None,
        "attempted calls that the generation limit cut",
        "raise the limit of one generation",
    ),
    Row(
        "endings",
        lambda findings, _: EndingMix(findings),
        Unit.COUNT,
        "rollouts",
        0,
        "rollouts without an ending",
        "resume the run, which seals what was in flight",
    ),
    Row(
        "error_rate",
        lambda findings, _: RolloutRate(findings, endings.ended_in_error),
        Unit.SHARE,
        "rollouts",
        0.2,
        "rollouts that ended as an error, not counting interrupted ones",
        "look at the reasons in 'endings': this is the infrastructure, not the policy",
    ),
    Row(
        "scoring_failed",
        lambda findings, _: RolloutRate(findings, endings.scoring_failed),
        Unit.SHARE,
        "rollouts",
        0.05,
        "rollouts whose scorer failed",
        "fix the scorer; the rollouts that it failed on have no vote",
    ),
    Row(
        "truncated",
        lambda findings, _: RolloutRate(findings, endings.truncated),
        Unit.SHARE,
        "rollouts",
        None,
        "rollouts that a budget or a limit cut short",
        "raise the budget, or look for turns that never end",
    ),
    Row(
        "zero_variance",
        ZeroVariance,
        Unit.SHARE,
        "groups",
        None,
        "groups whose voters all have the same reward, which teach nothing",
        "choose tasks nearer to what the policy can do, or larger groups",
    ),
    Row(
        "group_sizes",
        GroupSizes,
        Unit.SHARE,
        "groups",
        None,
        "groups that used fewer rollouts than were scheduled",
        "look which endings took them: losing rollouts selects",
    ),
    Row(
        "duplicates",
        lambda findings, _: DuplicateTokens(findings),
        Unit.SHARE,
        "rollouts",
        None,
        "rollouts with the same sampled tokens as another one of their group",
        "give each member its own seed, and sample at temperature 1",
        reads_tokens=True,
    ),
    Row(
        "no_vote",
        NoVote,
        Unit.SHARE,
        "rollouts",
        None,
        "rollouts without a vote, which are not trained",
        "look at how they ended and at the scorer",
    ),
    Row(
        "version_span",
        lambda findings, _: VersionSpan(findings),
        Unit.VERSIONS,
        "rollouts",
        None,
        "policy versions between the oldest and the newest token of one rollout",
        "update less often, or bound the staleness",
    ),
    Row(
        "staleness",
        StalestUsed,
        Unit.VERSIONS,
        "rollouts that a trainer took",
        None,
        "policy versions between a rollout and the trainer that took it",
        "bound the staleness, make the queue shorter, or update less often",
    ),
    Row(
        "stale_dropped",
        StaleDropped,
        Unit.SHARE,
        "rollouts that a trainer took or the bound dropped",
        None,
        "rollouts that the staleness bound dropped",
        "look in 'selection' which tasks it hits: dropping slow rollouts biases the batch; allow more staleness, or "
        "fewer in flight",
    ),
    Row(
        "mismatch",
        TrainerMismatch,
        Unit.NATS,
        "trained tokens",
        0.1,
        "nats between the engine's logprobs and the trainer's, in the mean",
        "see that both hold the same weights, and how each computes (quantised weights, half precision); a correction "
        "of the loss helps with little",
    ),
    Row(
        "selection",
        Selection,
        Unit.SHARE,
        "attempts",
        None,
        "attempts that were lost beyond the rest, in one task, length, last tool or policy version",
        "what is lost more often is missing from what is learned: look at the endings there",
    ),
    Row(
        "tokens_lost",
        TokensLost,
        Unit.SHARE,
        "sampled tokens",
        None,
        "sampled tokens that no sample trains",
        "look at the reasons in the details",
        reads_tokens=True,
    ),
    Row(
        "control_in_content",
        lambda findings, evidence: ControlInContent(findings, evidence.reencoder),
        Unit.COUNT,
        "content tokens",
        0,
        "control tokens inside of content",
        "encode content with control tokens off: whoever wrote the text could end a turn or open one",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "control_spelled",
        lambda findings, evidence: ControlSpelled(findings, evidence.reencoder),
        Unit.COUNT,
        "messages from outside",
        None,
        "messages from outside whose text spells a control token",
        "read some of them: in ordinary tokens they are harmless, and someone may be trying to forge a turn",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "control_from_text",
        lambda findings, evidence: ControlFromText(findings, evidence.reencoder),
        Unit.SHARE,
        "turns",
        None,
        "turns whose text, encoded again, would have control tokens that were not sampled",
        "severe: where text is encoded again these turns end, or open, where the policy did not; keep the stored ids",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "markers_in_content",
        lambda findings, evidence: MarkersInContent(findings, evidence.reencoder),
        Unit.SHARE,
        "turns",
        None,
        "replies with markers that the parser took for text",
        "the form in which calls are read is not the one that the model writes: check the template, name the call "
        "format",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "begin_tokens",
        lambda findings, evidence: BeginTokens(findings, evidence.reencoder),
        Unit.COUNT,
        "branches",
        0,
        "branches with a begin token missing, doubled or inside",
        "encode rendered text without adding special tokens: the template writes the begin token itself",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "separators",
        lambda findings, evidence: Separators(findings, evidence.reencoder),
        Unit.COUNT,
        "boundaries behind turns",
        0,
        "boundaries between a turn and the next messages that are not what the template writes",
        "render what follows a turn from behind its end token, the line end there included",
        reads_tokens=True,
        needs_renderer=True,
    ),
    Row(
        "template_drift",
        lambda findings, evidence: TemplateDrift(findings, evidence.reencoder),
        Unit.SHARE,
        "branches",
        None,
        "branches whose text is not what the template writes of the same messages",
        "look at the causes in the details: the policy is deployed with another history than it is trained with",
        reads_tokens=True,
        needs_renderer=True,
    ),
)
"""All checks, in the order of the report."""
