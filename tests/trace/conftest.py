"""Hypothesis for this room: no deadline, for the machine is shared; few examples, for each builds a whole trace."""

from hypothesis import HealthCheck, settings

settings.register_profile("trace", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trace")
