"""A storm of faults: runs whose engine fails in every way and whose processes are killed, and what must hold then.

`world` is the environment, `engine` the fake server in a process of its own, `life` one life of the run, `lives` its
processes, `log` what the
server wrote down, `checks` what holds the run's record against it.
"""
