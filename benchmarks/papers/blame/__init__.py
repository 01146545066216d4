"""Attribution techniques compared on labelled traces, as papers on Who&When do."""
