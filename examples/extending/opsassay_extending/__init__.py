"""Extensions of OpsAssay, one file each."""
