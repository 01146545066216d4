"""A declared subset of PromQL: parsed by promql-parser, evaluated over all series and all steps at once."""
