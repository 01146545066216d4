"""Runs that were made elsewhere: what others recorded becomes a timeline, and what they did not is not judged."""
