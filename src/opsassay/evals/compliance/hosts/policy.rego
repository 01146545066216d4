package compliance

default compliant := false

compliant if {
    CONDITION
}
