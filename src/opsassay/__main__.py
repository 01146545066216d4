"""`python -m opsassay` is the command line."""

from opsassay.cli import main

main()
