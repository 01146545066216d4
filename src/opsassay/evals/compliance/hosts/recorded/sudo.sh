#!/bin/sh
# Whoever collects is the one that may read here.
while [ $# -gt 0 ]; do case $1 in -u|-g|-p) shift 2 ;; -*) shift ;; *=*) shift ;; *) break ;; esac; done
exec "$@"
