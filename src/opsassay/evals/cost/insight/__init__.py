"""Questions over cost data: templates, keys computed twice, and the grading of answers."""
