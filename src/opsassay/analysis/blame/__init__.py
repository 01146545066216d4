"""Failure attribution: which agent of a system is responsible for a failure, and from which step on."""
