"""An evaluator of a declared subset of Kyverno: what is outside of it is an error, and never a pass."""
