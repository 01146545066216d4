"""An evaluator of a declared subset of Kyverno; anything outside of the subset is an error, never a pass."""
