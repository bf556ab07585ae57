"""Miles: `Sample`, its debug rollout file, its own conversion, group norm and policy loss, from its public source."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling a loss takes a minute and changes nothing here

import pytest
import torch

from rollbook.export import export
from rollbook.export.conformance.made import cases
from rollbook.export.doors import miles as door
from rollbook.rollout import LoadedPolicy
from rollbook.run.doors.slime import Generate
from rollbook.trace import MemorySink, Task
from rollbook.trace.sample import Sample as OurSample
from tests.rollout.made import SMOLLM, Engine, Talk, says
from tests.slow.trainers.absent import stand_in
from tests.slow.trainers.recorder import need_source
from tests.slow.trainers.toy import LINEAR, Table, made

need_source("miles")
stand_in("sglang", "sglang_router", "megatron", "miles_plugins")

from miles.backends.training_utils import loss as miles_loss
from miles.backends.training_utils.cp_utils import get_sum_of_sample_mean
from miles.backends.training_utils.loss_hub import losses
from miles.backends.training_utils.loss_hub.logit_processors import get_log_probs_and_entropy
from miles.backends.training_utils.parallel import GroupInfo, ParallelState, set_parallel_state
from miles.ray.rollout.debug_data import load_debug_rollout_data
from miles.ray.rollout.train_data_conversion import convert_samples_to_train_data
from miles.utils.types import Sample

ONE = {
    name: GroupInfo(rank=0, size=1, group=None) for name in ("intra_dp", "intra_dp_cp", "cp", "tp", "pp", "ep", "etp")
}
set_parallel_state(ParallelState(**ONE, indep_dp=GroupInfo(rank=0, size=1, group=None), is_pp_last_stage=True))

ARGS = SimpleNamespace(
    qkv_format="thd",
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=False,
    n_samples_per_prompt=len(LINEAR),
    rollout_batch_size=1,
    reward_key=None,
    rollout_temperature=1.0,
    allgather_cp=False,
    log_probs_chunk_size=-1,
    true_on_policy_mode=True,  # the path of its own tests on the CPU: the other is a kernel of Megatron
    use_rollout_logprobs=True,
    skip_actor_forward_only=False,
    observe_training_entropy=False,
    kl_coef=0.0,
    kl_loss_type="k1",
    normalize_advantages=False,
    use_opd=False,
    eps_clip=0.2,
    eps_clip_high=0.2,
    entropy_coef=0.0,
    use_kl_loss=False,
    use_tis=False,
    get_mismatch_metrics=False,
    custom_pg_loss_reducer_function_path=None,
    use_opsm=False,
    calculate_per_token_loss=False,
    use_dynamic_global_batch_size=False,
    multi_lora_n_adapters=0,
)


def theirs(samples: list[OurSample]) -> list[Sample]:
    return [Sample.from_dict(each) for each in door.records(samples)]


def batch(samples: list[Sample], hook: Any = None) -> dict[str, Any]:
    """As Miles' trainer has it: its own conversion and its own advantages."""
    data = convert_samples_to_train_data(ARGS, samples, {}, None, hook)
    kinds = {"tokens": torch.long, "loss_masks": torch.int, "rollout_log_probs": torch.float32}
    for name, kind in kinds.items():
        data[name] = [torch.tensor(each, dtype=kind) for each in data[name]]
    data["total_lengths"] = [len(each) for each in data["tokens"]]
    data["unconcat_tokens"] = data["tokens"]
    data["rollout_mask_sums"] = torch.tensor(data["rollout_mask_sums"], dtype=torch.float32)
    miles_loss.compute_advantages_and_returns(ARGS, data)
    return data


def loss_of(model: Table, data: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Miles' policy loss, and the logits that it was computed from."""
    logits = model(torch.cat(data["tokens"]))[None].detach().requires_grad_()
    lengths = data["total_lengths"], data["response_lengths"]
    reducer = get_sum_of_sample_mean(*lengths, data["loss_masks"], denominators=data["rollout_mask_sums"])
    loss, _ = losses.policy_loss_function(ARGS, data, logits, reducer)
    return loss, logits


def predicted(data: dict[str, Any]) -> torch.Tensor:
    """bool over the packed logits: the token that this position predicts trains."""
    parts = []
    for total, answer, mask in zip(data["total_lengths"], data["response_lengths"], data["loss_masks"], strict=True):
        full = torch.zeros(total, dtype=torch.bool)
        full[total - answer - 1 : total - 1] = mask.bool()
        parts.append(full)
    return torch.cat(parts)


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_a_record_is_miles_sample_and_comes_back(name: str) -> None:
    for record in door.records(made(name)):
        sample = Sample.from_dict(record)
        sample.validate()
        again = sample.to_dict()
        for key, value in record.items():
            assert again[key] == value or key in ("spec_info", "prefix_cache_info"), key
        assert set(record) == set(Sample.__dataclass_fields__)


def test_the_oldest_version_is_that_of_the_record() -> None:
    (sample,) = theirs(made("two_versions"))
    assert sample.weight_versions == ["3", "4"]
    assert sample.oldest_weight_version == 3


def test_the_debug_rollout_file_is_read_by_miles(tmp_path: Any) -> None:
    sink = MemorySink()
    for case in cases():
        sink.seal(case.trace)
    done = export(sink, "slime", tmp_path / "rollout_0.pt")
    args = SimpleNamespace(
        load_debug_rollout_data=str(tmp_path / "rollout_{rollout_id}.pt"), load_debug_rollout_data_subsample=None
    )
    loaded, _ = load_debug_rollout_data(args, rollout_id=0)
    assert len(loaded) == done.samples
    assert sum(sum(each.loss_mask) for each in loaded) == done.trained
    for each in loaded:
        each.validate()


def test_recomputed_logprobs_are_the_behaviours() -> None:
    data = batch(theirs(made(*LINEAR)))
    logits = Table()(torch.cat(data["tokens"]))[None]
    found = get_log_probs_and_entropy(
        logits,
        args=ARGS,
        unconcat_tokens=data["tokens"],
        total_lengths=data["total_lengths"],
        response_lengths=data["response_lengths"],
    )
    for new, old, mask in zip(found["log_probs"], data["rollout_log_probs"], data["loss_masks"], strict=True):
        assert (new - old)[mask.bool()].abs().max() < 1e-5


def test_masked_tokens_have_exactly_no_gradient() -> None:
    data = batch(theirs(made(*LINEAR)))
    loss, logits = loss_of(Table(), data)
    loss.backward()
    assert torch.equal((logits.grad[0] != 0).any(dim=-1), predicted(data))


def test_miles_group_norm_is_our_advantage_branches_or_not() -> None:
    """Lost members are in no row, and the branches of one attempt vote once, without a hook."""
    ours = made(*LINEAR, "three_branches", "lost_host", "unscored")
    data = batch(theirs(ours))
    assert data["rewards"] == pytest.approx([each.advantage for each in ours], abs=1e-6)


def test_branches_with_different_rewards_are_refused_by_miles() -> None:
    branches = theirs(made("three_branches", "one_turn"))
    branches[0].reward = 0.5
    with pytest.raises(ValueError, match="must share one reward"):
        batch(branches)


def test_an_attempt_with_branches_weighs_as_much_as_one_without() -> None:
    ours = made("one_turn", "two_turns", "three_branches")
    data = batch(theirs(ours), hook=lambda args, samples: ([s.reward for s in samples], [1.0] * len(samples)))
    loss, logits = loss_of(Table(), data)
    loss.backward()
    targets = torch.cat([tokens.roll(-1) for tokens in data["tokens"]])[:, None]
    chance = torch.softmax(logits.detach()[0], -1).gather(-1, targets)[:, 0]
    given = logits.grad[0].gather(-1, targets)[:, 0] / (1 - chance)  # d loss / d logprob of the token that comes next
    pull: dict[str, float] = {}
    start = 0
    for sample, total in zip(ours, data["total_lengths"], strict=True):
        pull[sample.rollout] = pull.get(sample.rollout, 0.0) - float(given[start : start + total].sum())
        start += total
    assert pull == pytest.approx(dict.fromkeys(pull, 1.0), abs=1e-4)


def test_our_rollouts_as_miles_generate_function() -> None:
    generate = Generate(
        lambda: Talk("Again."),
        lambda sample: Task(id="t", prompt=sample.prompt, target=sample.label),
        LoadedPolicy(Engine([says("4"), says("5")]), SMOLLM.renderer),
    )
    given = Sample(group_index=4, index=7, prompt="What is two?", label="5", routing_key="key")
    (made_sample,) = asyncio.run(generate(ARGS, given, {"temperature": 1.0, "top_p": 1.0, "top_k": -1}))
    made_sample.validate()
    assert isinstance(made_sample, Sample)
    assert (made_sample.rollout_id, made_sample.routing_key, made_sample.status) == (7, "key", Sample.Status.COMPLETED)
    assert 0 < made_sample.effective_response_length < made_sample.response_length
