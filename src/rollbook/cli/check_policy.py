"""`rollbook check policy`: whether an engine keeps what rollouts stand on, tried by asking it."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import click
import msgspec

from rollbook.cli.app import Failed
from rollbook.cli.progress import CheckBar, FetchBar
from rollbook.cli.screen import console, print_json, show_table, visible
from rollbook.cli.template_options import api_key, read_variables, template_options
from rollbook.errors import UsageError
from rollbook.policy import PolicyFinding, PolicyReport, ScriptedPolicy, check_policy
from rollbook.rollout import LoadedPolicy
from rollbook.run import load_policy

__all__ = ["policy"]

EXAMPLES = """\b
Examples:
  rollbook check policy vllm:http://127.0.0.1:8000
  rollbook check policy sglang:http://10.0.0.7:30000 --tokenizer ./Qwen3-8B
  rollbook check policy llamacpp:http://127.0.0.1:8080 --tokenizer model.gguf --json
  rollbook check policy 'vllm:http://127.0.0.1:8000#my-model'
  rollbook check policy local
"""


@click.command(epilog=EXAMPLES, short_help="Whether an engine keeps what rollouts stand on.")
@click.argument("policy", metavar="POLICY")
@template_options
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def policy(
    ctx: click.Context,
    policy: str,
    tokenizer: str | None,
    template: Path | None,
    date: date | None,
    variables: tuple[str, ...],
    cache: Path | None,
    as_json: bool,
) -> None:
    """Ask the engine POLICY some fifty short questions and say of each promise whether it is kept: ids, stops,
    logprobs, seeds, cache, context, aborts, versions, sampling fields. Exit code 0: fit to train on; 1: a promise is
    broken; 2: it cannot be judged."""
    given = read_variables(variables)
    with FetchBar(console(stderr=True)) as fetching:
        loaded = load_policy(
            policy,
            tokenizer=tokenizer,
            api_key=api_key(),
            template=template,
            date=date,
            variables=given,
            cache=cache,
            progress=fetching,
        )
    if loaded.text is not None:
        raise UsageError(f"{policy} is a text-only endpoint: it gives no ids to check, and is for evaluation")
    if isinstance(loaded.policy, ScriptedPolicy):
        raise UsageError(f"{policy} says what its file says, whatever it is asked: there is no engine to check")
    with CheckBar(console(stderr=True)) as begins:
        report = asyncio.run(_check(loaded, begins))
    if as_json:
        print_json(msgspec.to_builtins(report) | {"fit": report.fit})
    else:
        _show(report)
    if report.broken:
        ctx.exit(1)
    if report.undecided:
        raise Failed(f"it cannot be judged: {_names(report.undecided)}")


async def _check(loaded: LoadedPolicy, begins: CheckBar) -> PolicyReport:
    async with loaded:
        return await check_policy(loaded.policy, loaded.renderer, begins=begins)


def _show(report: PolicyReport) -> None:
    out = console()
    rows = [(each.verdict.value, each.about.value, each.detail) for each in report.findings]
    show_table(out, f"Policy {report.name}", ("", "promise", "what was seen"), rows, form="kkl")
    length = report.context_length
    room = "a context of unknown length" if length is None else f"{length} tokens of context"
    out.print(visible(f"{report.engine}, {room}; {report.requests} requests were made."))
    if report.broken:
        out.print(visible(f"Training on its tokens would be wrong: {_names(report.broken)}."))
    elif report.fit:
        out.print("Training on its tokens is sound.")


def _names(findings: tuple[PolicyFinding, ...]) -> str:
    return ", ".join(each.about.value for each in findings)
