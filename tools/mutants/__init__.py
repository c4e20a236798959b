"""Takes each guard out of the code in turn, and shows that a test notices.

The list is `guards.py`; `python -m tools.mutants` works through it on a copy of the tree, and
`docs/guards.md` is made from it. A guard whose text is no longer found is an error, so the list cannot rot.
"""
