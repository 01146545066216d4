"""Test hosts as file trees with imitated commands, and the controls that they are checked for."""
