"""What an author uses, and the engine under it: agents, tools, runs and their steps.

`milepost` exports the author's part. The engine reaches the log through one `Journal`; it knows no store,
no pod and no process.
"""
