"""Runs an AgentRun manifest on this machine, without a cluster: same manifest, same log, same rules.

What the operator is on a cluster, `runner` is here: it begins or continues the run under its name, starts
executors one after the other, and ends what fails too often. It needs the extra `cli`.
"""
