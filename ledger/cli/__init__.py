"""The command line: one module a command family, loaded when its command is called."""
