"""`python -m foveapool`: the commands, for torchrun and for those without the script."""

from foveapool.cli.main import main

main()
