import math
from statistics import mean, stdev

from rollbook.policy.testing import Latency, Times


def test_parts_add_up_and_a_session_has_its_factor() -> None:
    latency = Latency(queue=1.0, prefill=0.5, per_prompt_token=0.01, per_token=0.1, sessions={"slow": 3.0})
    assert latency.times("s", 0, 50, 20) == Times(1.0, 1.0, 2.0)
    assert latency.times("slow", 0, 50, 20) == Times(3.0, 3.0, 6.0)
    assert latency.times("s", 0, 50, 20).total == 4.0


def test_the_spread_is_lognormal_and_repeatable() -> None:
    latency = Latency(queue=1.0, spread=0.5)
    drawn = [math.log(latency.times("s", number, 0, 0).queue) for number in range(2000)]
    assert drawn == [math.log(latency.times("s", number, 0, 0).queue) for number in range(2000)]
    assert abs(mean(drawn)) < 0.05
    assert abs(stdev(drawn) - 0.5) < 0.03
