"""The agent's workspace, and the files of its answer."""
