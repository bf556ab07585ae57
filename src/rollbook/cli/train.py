"""`rollbook train`: train a policy on an environment, and show each step."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol, cast

import click
from rich.console import Console

from rollbook.cli.app import Failed, Stopped
from rollbook.cli.estimator_options import ONE_GROUP
from rollbook.cli.next_folder import next_folder
from rollbook.cli.screen import console, counted, print_json, visible
from rollbook.cli.template_options import api_key, read_pairs
from rollbook.errors import optional, told
from rollbook.rewards.estimators import DEFAULT_ESTIMATOR
from rollbook.rollout import Limits
from rollbook.rollout.breaker import InfrastructureDown
from rollbook.run import Access, RunConfig
from rollbook.run.training_config import CORRECTIONS, StepRow, TrainingConfig, TrainingReport
from rollbook.trace import RolloutFailure

__all__ = ["command"]

LIMITS = Limits()
PACKAGES = ("torch", "transformers", "matplotlib", "aiohttp", "xllamacpp")

EXAMPLES = """\b
Examples:
  rollbook train calculator --option difficulty=1 --held-out 128
  rollbook train calculator --option difficulty=1 --steps 60 --lr 1e-3 --correction masked
  rollbook train my_package.worlds:MyWorld --policy local:model.gguf --tasks 4 --kl 0.01
  rollbook train calculator --policy vllm:http://127.0.0.1:8000 --tokenizer local:tiny
"""


@click.command(epilog=EXAMPLES, short_help="Train a policy on an environment.")
@click.argument("env")
@click.option(
    "--policy",
    default="local:tiny",
    show_default=True,
    help="local:MODEL, local:PATH.gguf; vllm:URL or sglang:URL with --tokenizer.",
)
@click.option("--tokenizer", metavar="PATH", help="The GGUF file, or local:MODEL, whose weights an engine serves.")
@click.option("--steps", type=click.IntRange(1), default=40, show_default=True, help="Optimiser steps.")
@click.option("--tasks", type=click.IntRange(1), default=16, show_default=True, help="Tasks per step.")
@click.option("--group", type=click.IntRange(1), default=8, show_default=True, help="Rollouts per task.")
@click.option("--lr", type=click.FloatRange(0.0, min_open=True), default=5e-4, show_default=True, help="Of Adam.")
@click.option(
    "--correction",
    type=click.Choice(CORRECTIONS),
    default=CORRECTIONS[0],
    show_default=True,
    help="What becomes of tokens that the trained policy finds likelier, or less likely, than the one that sampled.",
)
@click.option(
    "--kl", type=click.FloatRange(0.0), default=0.0, show_default=True, help="Weight of the pull to the first weights."
)
@click.option(
    "--estimator",
    type=click.Choice(ONE_GROUP),
    default=DEFAULT_ESTIMATOR,
    show_default=True,
    help="How advantages are computed from the rewards of a group.",
)
@click.option(
    "--held-out",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Tasks that are not trained on; tried before the first and after the last step.",
)
@click.option(
    "--max-turns", type=click.IntRange(1), default=LIMITS.max_turns, show_default=True, help="Turns per rollout."
)
@click.option(
    "--max-generation", type=click.IntRange(1), default=64, show_default=True, help="Sampled tokens per turn."
)
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. [default: runs/train-ENV-DATE-N]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides tasks and draws.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="For the environment; JSON or text.")
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Train a policy on ENV (a name from `rollbook envs`, or package.module:Class): rollouts, a step of the policy
    gradient from each batch, the new weights back to the engine. Needs the extra `train`.

    The training is a run that `show` and `audit` open; training.json and training.png lie in its folder.
    """
    config, folder = _config(given), given["out"] or next_folder(given["env"], "train-")
    if ":" in config.run.environment:
        sys.path.insert(0, str(Path.cwd()))
    err = console(stderr=True)
    access = Access(api_key=api_key(), cache=given["cache"])
    says = "training needs torch, transformers and matplotlib: run pip install '.[local,train]' in Rollbook's checkout"
    with redirect_stdout(sys.stderr):  # what an environment prints is no part of the answer
        module = cast("_Training", optional("rollbook.run.training", *PACKAGES, says=lambda error: says))
        report = _train(module, config, folder, access, lambda row: err.print(visible(_line(row, config.steps))))
        if len(report.steps) < config.steps:
            err.print(visible(_fewer(report, config.steps, folder)))
    if given["as_json"]:
        print_json({"run": str(folder), **report.to_dict()})
    else:
        _show(console(), report, folder, ctx.find_root().command_path)


class _Training(Protocol):
    """`rollbook.run.training`, which needs the extra ``train``."""

    def train_run(
        self, config: TrainingConfig, folder: Path, *, access: Access, told: Callable[[StepRow], None]
    ) -> Coroutine[Any, Any, TrainingReport]: ...


def _train(
    module: _Training, config: TrainingConfig, folder: Path, access: Access, tell: Callable[[StepRow], None]
) -> TrainingReport:
    try:
        return asyncio.run(module.train_run(config, folder, access=access, told=tell))
    except KeyboardInterrupt as error:
        raise Stopped(f"stopped; what was recorded is kept in {folder}, a training begins anew") from error
    except (InfrastructureDown, RolloutFailure) as error:
        raise Failed(f"{told(error)}\nWhat was recorded is kept in {folder}") from error


def _config(given: dict[str, Any]) -> TrainingConfig:
    run = RunConfig(
        environment=given["env"],
        options=read_pairs(given["options"], "--option", "KEY=VALUE", "difficulty=1"),
        policy=given["policy"],
        tokenizer=given["tokenizer"],
        tasks=given["tasks"],
        group=given["group"],
        seed=given["seed"],
        estimator=given["estimator"],
        limits=Limits(max_turns=given["max_turns"], max_generation=given["max_generation"]),
    )
    return TrainingConfig(
        run=run,
        steps=given["steps"],
        lr=given["lr"],
        correction=given["correction"],
        kl=given["kl"],
        held_out=given["held_out"],
    )


def _line(row: StepRow, steps: int) -> str:
    """One step in a line."""
    parts = [
        f"step {row.step + 1} of {steps}",
        "no votes" if row.reward is None else f"reward {row.reward:.3f}",
        counted(row.votes, "vote"),
        "no calls" if row.well_formed is None else f"well-formed calls in {row.well_formed:.0%} of turns with any",
        "nothing to learn" if row.norm is None else f"gradient {row.norm:.3f}",
    ]
    if row.mismatch.most is not None:
        parts.append(f"mismatch at most {row.mismatch.most:.1e} nats")
    return ", ".join([*parts, f"{row.seconds:.1f} s"])


def _fewer(report: TrainingReport, steps: int, folder: Path) -> str:
    return (
        f"Only {len(report.steps)} of {steps} steps were made, for groups without votes were given up: "
        f"`rollbook show {folder} --selection` tells which rule decided"
    )


def _show(out: Console, report: TrainingReport, folder: Path, program: str) -> None:
    first, last = report.steps[0].reward, report.steps[-1].reward
    if first is not None and last is not None:
        out.print(f"Mean reward on training tasks: {first:.3f} in the first step, {last:.3f} in the last")
    if report.held_out_start is not None and report.held_out_end is not None:
        out.print(f"Mean reward on held-out tasks: {report.held_out_start:.3f} before, {report.held_out_end:.3f} after")
    quoted = shlex.quote(str(folder))
    click.echo("Next:")
    for line, why in (
        (f"{program} show {quoted}", "the training's rollouts; add a part of an id to read one"),
        (f"{program} audit {quoted}", "the audit, with how far engine and trainer are apart"),
    ):
        click.echo(f"  {visible(line)}\n      {why}")
    click.echo(visible(f"Picture: {folder / 'training.png'}\nWeights: {folder.with_name(report.weights)}"))
