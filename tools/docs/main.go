// Command docs builds the documentation site: one HTML page per Markdown file of a directory, navigation from its
// README.md, and a search that runs in the browser. The site needs no server and loads nothing from other hosts.
//
//	go -C tools/docs run . ../../docs ../../dist/site
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: docs SOURCE TARGET")
		os.Exit(2)
	}
	pages, err := build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
	fmt.Printf("docs: %d pages, open %s/index.html\n", pages, os.Args[2])
}
