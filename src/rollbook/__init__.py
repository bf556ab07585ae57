"""Rollbook: the rollout layer of agentic RL."""
