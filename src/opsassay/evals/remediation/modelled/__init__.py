"""Trials on a model of a local system: no process runs, so that repairs are tried by the hundred."""
