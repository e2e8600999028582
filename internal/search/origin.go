package search

import (
	"net/http"
	"slices"
)

// allowOrigin lets pages of the allowed origins read responses. It reports whether the request was a preflight, which it
// has answered then. Browsers never send credentials on their own: a page must have a token.
func (s *Server) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	if len(s.cfg.AllowedOrigins) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(s.cfg.AllowedOrigins, origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", http.MethodGet)
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Last-Event-ID")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
