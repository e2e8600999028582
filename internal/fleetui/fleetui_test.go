package fleetui

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

func TestHandler_ServesFilesWithPolicy(t *testing.T) {
	h := Handler("")
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/page.html": "text/html; charset=utf-8", "/page.js": "text/javascript; charset=utf-8",
		"/page.css": "text/css; charset=utf-8", "/extension.js": "text/javascript; charset=utf-8"} {
		w := get(t, h, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		if w.Header().Get("Content-Security-Policy") != Policy || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	for _, path := range []string{"/other", "/../fleetui.go", "/dist/page.js", "/page.js/", "//page.js"} {
		if w := get(t, h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	for _, rule := range []string{"unsafe", "http:", "https:", "*"} {
		if strings.Contains(Policy, rule) {
			t.Errorf("the policy allows %s", rule)
		}
	}
}

func TestExtension_QuotesAddress(t *testing.T) {
	first, _, _ := strings.Cut(get(t, Handler(`https://hub.example.com/"</script>`), "/extension.js").Body.String(), "\n")
	if want := `window.argocdAgentFleetURL="https://hub.example.com/\"\u003c/script\u003e";`; first != want {
		t.Errorf("%s, want %s", first, want)
	}
	if strings.Contains(get(t, Handler(""), "/extension.js").Body.String(), "argocdAgentFleetURL=") {
		t.Error("the extension has an address")
	}
}

// A browser fetches nothing but the files of the page and its data, and no text becomes code or markup.
func TestBundles_HaveNoExternalResourcesOrMarkup(t *testing.T) {
	for _, name := range []string{"page.html", "page.js", "page.css", "extension.js"} {
		content, err := files.ReadFile("dist/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		for _, allowed := range []string{"http://www.w3.org/", "https?:\\/\\/"} { // names of XML namespaces, an expression
			text = strings.ReplaceAll(text, allowed, "")
		}
		if found := regexp.MustCompile(`https?://|@import|url\(|\beval\(|new Function\(|document\.write|insertAdjacentHTML|outerHTML|localStorage|sessionStorage|\.cookie|XMLHttpRequest|\bimport\(`).FindAllString(text, -1); len(found) > 0 {
			t.Errorf("%s has %q", name, found)
		}
		if name == "page.html" && regexp.MustCompile(`(?i)\s(on[a-z]+|style)=|<style|<script>`).MatchString(text) {
			t.Error("the policy forbids inline code and styles of page.html")
		}
	}
}

func TestBundles_AreSmall(t *testing.T) {
	for name, all := range map[string][]string{"page": {"page.html", "page.js", "page.css"}, "extension": {"extension.js"}} {
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		for _, file := range all {
			content, err := files.ReadFile("dist/" + file)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(content)
		}
		_ = w.Close()
		if t.Logf("%s: %d bytes", name, compressed.Len()); compressed.Len() > 300<<10 {
			t.Errorf("%s has %d bytes", name, compressed.Len())
		}
	}
}
