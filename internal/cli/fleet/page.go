package fleet

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page
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

// page is a document and its content security policy.
type page struct {
	content []byte
	policy  string
}

var thePage = assemble()

// assemble inserts styles and script. The policy allows them by hash and blocks other scripts, external resources and
// the conversion of text to markup.
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
