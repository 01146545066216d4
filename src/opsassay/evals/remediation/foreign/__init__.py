"""Runs made outside of OpsAssay: their records become a timeline; predicates without evidence are not applicable."""
