"""Parts of the testbed that all substrates share."""
