// Package fleetui has the fleet view for browsers: a page, and an extension of Argo CD's UI.
//
// The sources are in ui/, and hack/ui builds dist from them. It is committed, so that a build of the product needs no npm.
// The page fetches its data from the server that it comes from. That data contains text from workload clusters: the page
// shows it as text only, and the content security policy blocks everything else.
package fleetui

import (
	"bytes"
	"embed"
	"encoding/json"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed dist/page.html dist/page.js dist/page.css dist/extension.js
var files embed.FS

// Policy is the content security policy of the page. It allows the files of this package, requests to the same server and
// nothing else. Text cannot become markup.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at /, its files, and /extension.js. fleetURL is the address at which browsers reach the page, for
// the sidebar of Argo CD. If empty, the extension has no page in the sidebar.
func Handler(fleetURL string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Only GET is allowed.", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "page.html"
		}
		content, err := files.ReadFile("dist/" + name)
		if err != nil {
			http.Error(w, "Not found.", http.StatusNotFound)
			return
		}
		if name == "extension.js" {
			content = Extension(fleetURL)
		}
		h := w.Header()
		h.Set("Content-Type", contentType(name))
		h.Set("Content-Security-Policy", Policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// Extension returns the extension of Argo CD's UI. Its first line has the address. JSON is a subset of JavaScript.
func Extension(fleetURL string) []byte {
	content, _ := files.ReadFile("dist/extension.js") // is embedded
	if fleetURL == "" {
		return content
	}
	address, _ := json.Marshal(fleetURL) // cannot fail
	return append([]byte("window.argocdAgentFleetURL="+string(address)+";\n"), content...)
}

func contentType(name string) string {
	if path.Ext(name) == ".js" {
		return "text/javascript; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name)) // of .html and .css, which Go knows
}
