"""`python -m supervisor`: the same as `relight`."""

from supervisor.cli import main

main()
