"""Rego policies of strangers, judged by OPA in a seal, or by two engines that have to agree."""
