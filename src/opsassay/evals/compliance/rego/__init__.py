"""Evaluates untrusted Rego policies in a sandbox: by OPA, or by two engines that must agree."""
