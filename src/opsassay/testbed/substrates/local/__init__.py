"""The local substrate: a supervised system of real processes on one machine."""
