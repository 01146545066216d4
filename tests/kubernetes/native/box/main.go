// Box holds the small programs of the test cluster in one static binary: they are ours and for tests only.
//
//	init COMMAND ...               run a command, collect its orphans, end with it
//	pause                          hold a pod's namespaces
//	web [flags]                    an HTTP server with a health page
//	wget [-q] [-T S] [-O -] URL    an HTTP client
//	relay FD ADDRESS               pass connections of a listening socket on to an address
//	names [flags]                  answer DNS for the cluster's services
//	policies [flags]               enforce the network policies of one node
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

var programs = map[string]func([]string) error{
	"init":     initialise,
	"pause":    pause,
	"web":      web,
	"wget":     wget,
	"relay":    relay,
	"names":    names,
	"policies": policies,
}

func main() {
	arguments := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	if _, known := programs[arguments[0]]; !known {
		arguments = arguments[1:]
	}
	if len(arguments) == 0 || programs[arguments[0]] == nil {
		fmt.Fprintln(os.Stderr, "usage: box init|pause|web|wget|relay|names|policies ...")
		os.Exit(2)
	}
	if err := programs[arguments[0]](arguments[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", arguments[0], err)
		os.Exit(1)
	}
}
