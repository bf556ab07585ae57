"""The same rollouts by other packages, each in an environment of its own (`python -m bench --peers`)."""
