#!/bin/sh
# What the trial runs as its agent: opens the tools to whoever works here, until that is over. Arguments: SOCKET OPEN OVER
chmod 711 "$(dirname "$1")" && chmod 666 "$1" && env | grep _URL= > "$2/apis.env" && ln -sfn "$1" "$2/tools.sock"
until [ -e "$3" ]; do sleep 0.2; done
