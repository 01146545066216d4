"""Hosts as trees of files and recorded results of commands, and the controls that are asked of them."""
