// Command writ runs governed agents: it checks their declarations, runs their turns, and reads their ledger.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
