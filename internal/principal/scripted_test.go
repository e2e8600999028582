package principal

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// notFound answers as an API server does that has no object of this name.
func notFound(w http.ResponseWriter, r *http.Request) {
	object := strings.TrimSuffix(r.URL.Path, "/status")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"kind":%q,"name":%q},"code":404}`,
		path.Base(path.Dir(object)), path.Base(object))
}

// conflict answers as an API server does whose object is another by now.
func conflict(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
}
