"""The command, where the folder of scripts is not on the path: `python -m milepost`."""

from milepost.cli import main

main()
