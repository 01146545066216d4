"""Questions over cost data: templates, right answers computed twice, and grading."""
