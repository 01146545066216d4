package check

import rego.v1

default result := false

result if input.setting == "X11Forwarding no"
