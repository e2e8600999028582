package fleet

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
)

var (
	//go:embed page.html
	frame []byte
	//go:embed page.css
	styles []byte
	//go:embed page.js
	script []byte
)

// page is a whole document, and what a browser may do with it.
type page struct {
	content []byte
	policy  string
}

// thePage is one file: a browser asks for nothing else but the stream.
var thePage = assemble()

// assemble puts styles and script into their places. They are known to the policy by their content, so that nothing which
// gets into the page by whatever way is run, or loads anything; and no script can make markup of a text.
func assemble() page {
	content := bytes.Replace(frame, []byte("/* page.css */"), styles, 1)
	content = bytes.Replace(content, []byte("/* page.js */"), script, 1)
	return page{content, "default-src 'none'; script-src " + digest(script) + "; style-src " + digest(styles) +
		"; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"}
}

func digest(of []byte) string {
	sum := sha256.Sum256(of)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
