"""The command line: one file a command group, thin: parse, call, print."""
