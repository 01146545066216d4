"""Tools for authors of scenarios: checks before a run, calibration over many seeds, and counterfactual replays."""
