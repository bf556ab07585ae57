"""One trace as text that a person reads from top to bottom, or as plain data.

Rules: a message is printed once, in the first branch that holds it; every fork says its reason; what was not reported
is shown as missing; long texts are folded where they are longest, and say so.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections import Counter
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from rollbook.cli.screen import MISSING, counted, counts, fold, number, visible
from rollbook.trace import (
    Branch,
    Call,
    ContextPolicy,
    Disposition,
    Message,
    Node,
    Origin,
    ParseStatus,
    ToolCall,
    Trace,
    facts,
)

__all__ = ["show_trace", "trace_document"]

FOLD = 1200
"""Characters of one text that are shown unless all are asked for."""


def show_trace(
    out: Console, trace: Trace, fate: Disposition | None, advantage: facts.Advantage | None, *, full: bool
) -> None:
    """Print one trace."""
    page = _Page(out, trace, full=full)
    page.head(fate, advantage)
    shown: set[int] = set()
    for branch in trace.graph.branches():
        page.branch(branch, shown)
        shown.update(branch.nodes.tolist())
    page.foot()


def trace_document(trace: Trace, fate: Disposition | None, advantage: facts.Advantage | None) -> dict[str, Any]:
    """One trace as plain data, token ids and logprobs left out."""
    return {
        "head": msgspec.to_builtins(trace.head),
        "nodes": [_node_document(node) for node in trace.graph],
        "branches": [branch.nodes.tolist() for branch in trace.graph.branches()],
        "calls": msgspec.to_builtins(trace.calls),
        "edges": msgspec.to_builtins(trace.edges),
        "tail": msgspec.to_builtins(trace.tail),
        "disposition": msgspec.to_builtins(fate),
        "advantage": advantage.advantage if advantage else None,
    }


def _node_document(node: Node) -> dict[str, Any]:
    return {
        "index": node.index,
        "parent": node.parent,
        "origin": str(node.origin),
        "message": msgspec.to_builtins(node.message),
        "tokens": len(node.token_ids),
        "sampled": len(node.sampled_ids),
        "rescored": len(node.rescored),
        "calls": sorted({int(call) for call, _ in node.segments.tolist()}),
        "fork": msgspec.to_builtins(node.fork),
        "mark": msgspec.to_builtins(node.mark),
    }


class _Page:
    """Prints the parts of one trace."""

    def __init__(self, out: Console, trace: Trace, *, full: bool) -> None:
        self.out, self.trace, self.full = out, trace, full

    def line(self, text: str, style: str = "", indent: int = 0) -> None:
        """Text as it is, made harmless, wrapped and indented."""
        for each in visible(text).split("\n"):
            self.out.print(Text(" " * indent + each, style=style), soft_wrap=True)

    def wrapped(self, text: str, style: str = "", indent: int = 0) -> None:
        """One long line of our own words, broken where the screen ends."""
        room = max(self.out.width - indent - 2, 20)
        for place, each in enumerate(
            textwrap.wrap(visible(text), room, break_long_words=False, break_on_hyphens=False)
        ):
            self.line(each, style, indent + (2 if place else 0))

    def text(self, text: str, indent: int = 4) -> None:
        """Text of a message, folded where it is long."""
        if text:
            self.line(fold(text, FOLD, full=self.full), indent=indent)

    def head(self, fate: Disposition | None, advantage: facts.Advantage | None) -> None:
        """Whose attempt it is, how it ended, and what it got."""
        head, tail, trace = self.trace.head, self.trace.tail, self.trace
        self.line(f"rollout {trace.id}", "bold")
        self.line(f"group {head.group}, member {head.member}, attempt {head.attempt}, seat {head.agent.seat}", indent=2)
        self.line(f"environment {head.environment or MISSING}, task {head.task.id}", indent=2)
        for policy in head.policies:
            prompt = f", tool prompt {policy.tool_prompt}" if policy.tool_prompt else ""
            settings = "".join(f", {name} {value}" for name, value in policy.template_settings.items())
            self.line(f"policy {policy.name} ({policy.engine or 'engine not known'}){prompt}{settings}", indent=2)
        if head.tools:
            rendered = {True: "in the prompt", False: "NOT in the prompt", None: "not known whether in the prompt"}
            names = ", ".join(tool.name for tool in head.tools)
            self.line(f"tools {names} ({rendered[head.tools_rendered]})", indent=2)
        if head.context_policy is ContextPolicy.TEMPLATE:
            self.line("context template: each prompt as the template writes the history", indent=2)
        ending = f"{trace.ending}" if trace.ending else "none yet"
        detail = f": {trace.ending.detail}" if trace.ending and trace.ending.detail else ""
        self.line(f"ending {ending}{detail}", "bold", indent=2)
        parts = "".join(f", {name} {number(value)}" for name, value in tail.reward_parts.items())
        scoring = f" ({tail.scoring.status}{f': {tail.scoring.reason}' if tail.scoring.reason else ''})"
        self.line(f"reward {number(trace.reward)}{parts}{scoring}", indent=2)
        decided = f"{fate.fate} by '{fate.rule}'" if fate else "undecided"
        self.line(f"disposition {decided}, advantage {number(advantage.advantage if advantage else None)}", indent=2)
        tokens = f"{trace.graph.sampled_count}/{len(trace.graph.tokens)} (sampled/all)" if head.tokens else "absent"
        turns, calls = counted(len(trace.policy_nodes), "turn"), counted(len(trace.calls), "call")
        self.line(f"tokens {tokens}, {turns}, {calls} to the engine", indent=2)
        if tail.metrics:
            self.line("metrics " + ", ".join(f"{name} {value:g}" for name, value in tail.metrics.items()), indent=2)
        if tail.times:
            times = msgspec.structs.asdict(tail.times)
            shown = ", ".join(
                f"{name} {value:.3f}" for name, value in times.items() if value and f"{value:.3f}" != "0.000"
            )
            self.wrapped(f"seconds {shown or 'none to speak of'}", indent=2)

    def branch(self, branch: Branch, shown: set[int]) -> None:
        """The messages of one branch that no earlier branch showed."""
        nodes: list[int] = branch.nodes.tolist()
        new = [node for node in nodes if node not in shown]
        since = f", the first {len(nodes) - len(new)} as above" if len(new) < len(nodes) else ""
        self.line("")
        self.line(f"branch {branch.index}: {counted(len(nodes), 'message')}{since}", "bold")
        for synthetic, run in itertools.groupby(
            (self.trace.graph[index] for index in new), lambda node: node.origin is Origin.SYNTHETIC
        ):
            if synthetic and not self.full:
                self.added(list(run))
                continue
            for node in run:
                self.node(node)

    def added(self, nodes: list[Node]) -> None:
        """Messages that the template or the tool prompt put there: one alone as it is, several as one line."""
        if len(nodes) == 1:
            self.node(nodes[0])
            return
        roles = counts(Counter(str(node.message.role) for node in nodes))
        tokens = sum(len(node.token_ids) for node in nodes)
        self.line(
            f"[{nodes[0].index}..{nodes[-1].index}] {len(nodes)} messages that the prompt adds ({roles}), {tokens} "
            "tokens; --full shows them",
            "cyan",
            2,
        )

    def node(self, node: Node) -> None:
        """One message: who says it, its tokens, its text, its calls."""
        message, sampled = node.message, len(node.sampled_ids)
        if node.fork is not None:
            self.line(f"  fork from node {node.parent}: {node.fork.reason} {node.fork.detail}".rstrip(), "yellow")
        tokens = f"{len(node.token_ids)} tokens" + (f", {sampled} sampled" if sampled else "")
        rescored = f", {len(node.rescored)} rescored" if len(node.rescored) else ""
        mark = f", {node.mark}" if node.mark else ""
        self.line(
            f"[{node.index}] {message.role} ({node.origin}) {_answers(message)}{tokens}{rescored}{mark}", "cyan", 2
        )
        if message.reasoning is not None:
            self.line("reasoning:", "dim", 4)
            self.text(message.reasoning, 6)
        self.text(message.content)
        for call in message.tool_calls:
            self.tool_call(call)
        for index in dict.fromkeys(int(call) for call, _ in node.segments.tolist()):
            self.wrapped(f"call {index}: {_engine_call(self.trace.calls[index])}", "dim", 4)

    def tool_call(self, call: ToolCall) -> None:
        """One attempted call, with its status and what was sampled."""
        error = f": {call.error}" if call.error else ""
        given = ", no arguments"
        if call.arguments is not None:
            given = f" {fold(json.dumps(call.arguments, ensure_ascii=False), FOLD, full=self.full)}"
        self.line(f"tool call {call.id}: {call.name or 'no name'}{given}", indent=4)
        self.line(f"{call.status}{error}", "green" if call.status is ParseStatus.OK else "red", 6)
        if call.raw:
            self.line(f"as sampled: {fold(call.raw.strip(), FOLD, full=self.full)}", "dim", 6)

    def foot(self) -> None:
        """What stands beside the messages: calls that gave none, edges, errors."""
        gave_none = [(index, call) for index, call in enumerate(self.trace.calls) if call.node is None]
        for index, call in gave_none:
            self.wrapped(f"call {index} gave no message: {_engine_call(call)}", "red")
        for edge in self.trace.edges:
            ends = " -> ".join(f"{ref.rollout or ''}[{ref.node}]" for ref in (edge.source, edge.target))
            self.line(f"edge {edge.label}: {ends} {edge.detail}".rstrip())
        for note in self.trace.tail.errors:
            self.line(f"error in {note.where}:", "red")
            self.text(note.text)


def _answers(message: Message) -> str:
    if message.call_id is None:
        return ""
    fault = f", failed by {message.fault}" if message.fault else ""
    name = f" {message.name}" if message.name else ""
    return f"answers {message.call_id}{name}{fault}, "


def _engine_call(call: Call) -> str:
    """What is known of a request; what the engine did not report is left out."""
    finish = f"{call.finish}"
    if call.engine_finish and call.engine_finish != finish:
        finish += f", which the engine calls {call.engine_finish}"
    cached = f", {call.cached_tokens} of them cached" if call.cached_tokens is not None else ""
    prompt = [f"{call.prompt_tokens} prompt tokens{cached}"] if call.prompt_tokens is not None else []
    sampled = [f"{call.completion_tokens} sampled"] if call.completion_tokens is not None else []
    seed = [f"seed {call.sampling.seed}"] if call.sampling.seed is not None else []
    parts = {"queue": call.queue, "prefill": call.prefill, "decode": call.decode}
    times = [f"{name} {value:.3f} s" for name, value in parts.items() if value is not None]
    words = [
        finish,
        *prompt,
        *sampled,
        f"logprobs {call.logprob_kind or 'absent'}",
        f"temperature {call.sampling.temperature:g}",
        *seed,
        f"{call.wall:.3f} s",
        *times,
        *([f"{call.tries} tries"] if call.tries > 1 else []),
    ]
    return ", ".join(words) + (f": {call.error}" if call.error else "")
