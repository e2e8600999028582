package fleet

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path"
	"strings"
)

// notFound responds like an API server without this object.
func notFound(w http.ResponseWriter, r *http.Request) {
	object := strings.TrimSuffix(r.URL.Path, "/status")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"kind":%q,"name":%q},"code":404}`,
		path.Base(path.Dir(object)), path.Base(object))
}

// conflict responds like an API server with a newer object.
func conflict(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
}

func fingerprintOf(text string) string { return fmt.Sprintf("%X", sha256.Sum256([]byte(text))) }
