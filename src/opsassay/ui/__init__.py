"""Pages and self-contained HTML reports."""
