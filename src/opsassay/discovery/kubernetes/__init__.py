"""The laboratory on a cluster: six primitives, the scripted operator and the guard of "side-effects", Appendix H."""
