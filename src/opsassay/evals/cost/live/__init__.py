"""Live cost tasks: a running system overspends, and its operator is judged by its cost and by the effect on users."""
