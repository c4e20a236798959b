"""The durable log of a run: records, the head that commits them, and the stores that keep both.

`codec`, `records`, `fold`, `head`, `answers` do no I/O. `store` names the few calls that a store must
offer; `memory`, `file` and `s3` offer them. `committer` is the one writer of a process, `claim` how it
becomes the run's writer, `runs` what is done to a run from outside: begin, adopt, end.
"""
