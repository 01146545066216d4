"""Live cost tasks: a running system overspends, and whoever operates it is judged by its cost and by what users felt."""
