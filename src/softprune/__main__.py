"""``python -m softprune``: the command, for torchrun."""

from softprune.cli import main

main()
