"""The command line, run in process; a subprocess only where its start or its output is what is tested."""
