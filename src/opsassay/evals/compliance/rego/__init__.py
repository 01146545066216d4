"""Rego policies of strangers, judged by regorus in a seal, with four outcomes: true, false, undefined, error."""
