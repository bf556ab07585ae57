"""`rollbook run`: rollouts of one environment into one folder, and what came out."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from rollbook.audit import Report, audit
from rollbook.cli.app import Failed, Stopped
from rollbook.cli.audit_view import show_audit
from rollbook.cli.estimator_options import estimator_options
from rollbook.cli.next_folder import next_folder
from rollbook.cli.pool_options import pool_options, read_breaker, read_groups, read_limits
from rollbook.cli.progress import FetchBar, RunBar
from rollbook.cli.report_view import show_report
from rollbook.cli.screen import console, counted, print_json, visible
from rollbook.cli.selection_view import group_line
from rollbook.cli.template_options import api_key, read_pairs, read_variables, template_options
from rollbook.cli.watching import watched
from rollbook.errors import StoreError, UsageError, told
from rollbook.render import TextSide
from rollbook.rollout import Limits, LoadedPolicy
from rollbook.rollout.breaker import InfrastructureDown
from rollbook.rollout.pool import WorkersDie
from rollbook.run import (
    Access,
    ResourceReport,
    RunConfig,
    RunOutcome,
    check_folder,
    open_run,
    policy_of,
    read_resources,
    report,
    run,
    selection,
)
from rollbook.run.resume import refuse_stream
from rollbook.trace import ContextPolicy, Sampling
from rollbook.worlds import make

__all__ = ["command"]

LIMITS, SAMPLING = Limits(), Sampling()

EXAMPLES = """\b
Examples:
  rollbook run calculator --out runs/demo
  rollbook run calculator --option difficulty=1 --tasks 16 --group 8 --seed 3
  rollbook run my_package.worlds:MyWorld --policy local:model.gguf --max-turns 4
  rollbook run code --policy vllm:http://127.0.0.1:8000 --workers 4 --concurrency 512
  rollbook run calculator --limit engine=64 --rate tool:search=5 --refill 2 --min-used 4
  rollbook run my_package.worlds:MyWorld --policy local:qwen3.gguf --context template
  rollbook run calculator --policy vllm:http://127.0.0.1:8000 --concurrency 64
  rollbook run calculator --policy local:llama.gguf --date 2026-01-31 --set enable_thinking=false
  rollbook run calculator --out runs/demo --resume
"""


@click.command(epilog=EXAMPLES, short_help="Run rollouts of an environment into a folder.")
@click.argument("env")
@click.option(
    "--policy",
    default="local",
    show_default=True,
    help="local, local:MODEL, local:PATH.gguf, vllm:URL, sglang:URL, llamacpp:URL, text:URL#MODEL, scripted:FILE.",
)
@click.option("--tasks", type=click.IntRange(1), default=8, show_default=True, help="How many tasks.")
@click.option("--group", type=click.IntRange(1), default=4, show_default=True, help="Rollouts per task.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. [default: runs/ENV-DATE-N]")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Decides the tasks and each request's seed; see --concurrency.",
)
@click.option(
    "--max-turns", type=click.IntRange(1), default=LIMITS.max_turns, show_default=True, help="Turns per rollout."
)
@click.option("--max-tokens", type=click.IntRange(1), help="Sampled tokens per rollout. [default: no limit]")
@click.option(
    "--max-generation",
    type=click.IntRange(1),
    default=LIMITS.max_generation,
    show_default=True,
    help="Sampled tokens per turn.",
)
@click.option(
    "--deadline",
    type=float,
    default=LIMITS.deadline,
    show_default=True,
    help="Seconds per rollout, waiting not counted.",
)
@click.option(
    "--temperature", type=float, default=1.0, show_default=True, help="1 samples as is; 0 takes the likeliest token."
)
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Nucleus mass; 1 keeps everything.")
@click.option("--top-k", type=int, default=0, show_default=True, help="Keep the k most likely; 0 keeps everything.")
@click.option(
    "--context",
    type=click.Choice([str(policy) for policy in ContextPolicy]),
    default=str(ContextPolicy.KEEP),
    show_default=True,
    help="Earlier turns in later prompts: as sampled, or as the chat template writes them then.",
)
@template_options
@estimator_options
@pool_options
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--allow-changed", is_flag=True, help="Resume although limits, sampling or the policy differ.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="For the environment; JSON or text.")
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run rollouts of ENV (a name from `rollbook envs`, or package.module:Class) and show what came out.

    Exit code 1: all ran, but the audit found a limit broken.
    """
    config, folder = _config(given), _folder(given)
    access = Access(api_key=api_key(), cache=given["cache"])
    if ":" in config.environment:
        sys.path.insert(0, str(Path.cwd()))
    err = console(stderr=True)
    check_folder(config, folder, resume=given["resume"], allow_changed=given["allow_changed"])
    if given["resume"]:
        refuse_stream(folder)
    place = folder.absolute()  # an environment may change the working folder
    if config.sampling.changes_distribution:
        err.print(_warning(config.sampling))
    with redirect_stdout(sys.stderr):  # what an environment prints is no part of the answer
        make(config.environment, **config.options)  # a wrong name is found out before a model is fetched
        with FetchBar(err) as fetching:
            loaded = policy_of(config, access, fetching)
        outcome = _run(ctx, config, folder, loaded, access, given)
    _tell_unused(err, config, read_resources(place))
    source = open_run(place)
    renderer = loaded.renderer if loaded.text is None and isinstance(loaded.renderer, TextSide) else None
    found, judged = report(source, read_resources(place)), audit(source, renderer=renderer)
    chosen = selection(source)
    if given["as_json"]:
        document = {"run": str(folder), "interrupted": outcome.interrupted, "recovery": str(outcome.recovery)}
        print_json({**document, "report": found.to_dict(), "selection": chosen.to_dict(), "audit": judged.to_dict()})
    else:
        out = console()
        show_report(out, found)
        out.print(f"Groups: {group_line(chosen.groups)}\n")
        show_audit(out, judged)
        _next_steps(ctx, folder, judged)
    ctx.exit(1 if judged.broke else 0)


def _run(
    ctx: click.Context, config: RunConfig, folder: Path, loaded: LoadedPolicy, access: Access, given: dict[str, Any]
) -> RunOutcome:
    err = console(stderr=True)
    again = _again(ctx, folder)
    try:
        with RunBar(err) as bar, watched(bar, given["metrics_port"], config.policy) as progress:
            outcome = asyncio.run(
                run(
                    config,
                    folder,
                    resume=given["resume"],
                    allow_changed=given["allow_changed"],
                    concurrency=given["concurrency"],
                    workers=given["workers"],
                    ray=given["ray"] or False,
                    store=given["store"],
                    start_jitter=given["start_jitter"],
                    policy=loaded,
                    access=access,
                    progress=progress,
                )
            )
    except KeyboardInterrupt as error:
        raise Stopped(f"stopped; finished rollouts are kept. This goes on:\n  {again}") from error
    except (SystemExit, asyncio.CancelledError) as error:
        # a task that foreign code started by itself ends the loop from inside, past every boundary
        raise Failed(
            f"the run was stopped from inside, by code that it ran ({type(error).__name__}); finished rollouts are "
            f"kept. This goes on:\n  {again}"
        ) from error
    except (InfrastructureDown, WorkersDie) as error:
        raise Failed(f"{told(error)}\nFinished rollouts are kept. This goes on:\n  {again}") from error
    except StoreError as error:
        if not (folder / "run.json").exists():
            raise
        raise Failed(f"{told(error)}\nFinished rollouts are kept. Mend that; then this goes on:\n  {again}") from error
    if not outcome.recovery.clean:
        err.print(f"The last process left damage behind; what could be mended was:\n{visible(str(outcome.recovery))}")
    if outcome.interrupted:
        err.print(
            f"{counted(len(outcome.interrupted), 'rollout')} still ran when the earlier process died; each is kept as "
            "error/interrupted, and was run again."
        )
    return outcome


def _tell_unused(err: Console, config: RunConfig, found: ResourceReport | None) -> None:
    """A limit by a name that nothing has binds nobody, and would do so without a word."""
    used = [] if found is None else [each.name for each in found.limiters if each.entered]
    unused = [name for name in config.resources if name not in used]
    if unused and used:
        err.print(visible(f"Nothing used {', '.join(unused)}, so the limit bound nothing; used: {', '.join(used)}."))


def _config(given: dict[str, Any]) -> RunConfig:
    return RunConfig(
        environment=given["env"],
        options=read_pairs(given["options"], "--option", "KEY=VALUE", "difficulty=2"),
        policy=given["policy"],
        tasks=given["tasks"],
        group=given["group"],
        seed=given["seed"],
        limits=Limits(
            max_turns=given["max_turns"],
            max_tokens=given["max_tokens"],
            max_generation=given["max_generation"],
            deadline=given["deadline"],
            request_retries=given["request_retries"],
        ),
        groups=read_groups(given),
        resources=read_limits(given),
        breaker=read_breaker(given),
        estimator=given["estimator"],
        outcome_part=given["outcome_part"],
        sampling=Sampling(temperature=given["temperature"], top_p=given["top_p"], top_k=given["top_k"]),
        context=ContextPolicy(given["context"]),
        tokenizer=given["tokenizer"],
        template=None if given["template"] is None else str(given["template"]),
        template_date=given["date"],
        template_variables=read_variables(given["variables"]),
    )


def _folder(given: dict[str, Any]) -> Path:
    out: Path | None = given["out"]
    if out is not None:
        return out
    if given["resume"]:
        raise UsageError("--resume goes on with a run that is there: name its folder with --out")
    return next_folder(given["env"])


def _warning(sampling: Sampling) -> str:
    changed = [f"temperature {sampling.temperature:g}"] if sampling.temperature != 1.0 else []
    changed += [f"top-p {sampling.top_p:g}"] if sampling.top_p != 1.0 else []
    changed += [f"top-k {sampling.top_k}"] if sampling.top_k else []
    return (
        f"{', '.join(changed)}: tokens are not drawn from the model's own distribution, so raw logprobs are not "
        "theirs: the audit says so, and exports refuse them unless told."
    )


def _again(ctx: click.Context, folder: Path) -> str:
    """The command line that goes on with this run."""
    words = [*shlex.split(ctx.command_path), ctx.params["env"]]
    for param in ctx.command.params:
        name = param.name or ""
        typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and isinstance(param, click.Option) and name not in ("out", "resume"):
            values = ctx.params[name] if param.multiple else (ctx.params[name],)
            words += [
                word for value in values for word in ([param.opts[0]] if param.is_flag else [param.opts[0], str(value)])
            ]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def _can_export(judged: Report) -> bool:
    """False where an export would refuse: nobody has a vote, or the logprobs are not of what was sampled."""
    unfit = any(judged[name].value for name in ("logprob_kind", "logprobs_absent"))
    return judged["no_vote"].value not in (None, 1.0) and not unfit


def _next_steps(ctx: click.Context, folder: Path, judged: Report) -> None:
    program, quoted = ctx.find_root().command_path, shlex.quote(str(folder))
    steps = [
        (f"{program} show {quoted}", "one line per rollout; add a part of an id to read one"),
        (f"{program} audit {quoted}", "the audit again; --gate FILE sets limits"),
    ]
    if _can_export(judged):
        target = shlex.quote(f"{folder}.jsonl")
        steps.append((f"{program} export {quoted} --to jsonl {target}", "samples for a trainer"))
    click.echo("Next:")
    for line, why in steps:
        click.echo(f"  {visible(line)}\n      {why}")
