"""The problems behind the alerts of a storm, and answers to storms."""
