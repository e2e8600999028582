// Package observe serves probes and Prometheus metrics over HTTP.
package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Check is a health check. Run returns nil if it passes.
type Check struct {
	Name string
	Run  func() error
	// WarnOnly means that a failure is reported but does not make the process unready.
	WarnOnly bool
}

// Probes serves /healthz (ready) and /livez (the process responds). The process is ready if every check passes. The
// response names failed checks. With ?verbose it lists all checks, one per line: ok, bad or warning, and the name.
func Probes(checks ...Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	ready := func(w http.ResponseWriter, r *http.Request) {
		verbose := r.URL.Query().Has("verbose")
		code := http.StatusOK
		var lines []string
		for _, c := range checks {
			word := "ok"
			err := c.Run()
			switch {
			case err != nil && c.WarnOnly:
				word = WarningWord
			case err != nil:
				word, code = "bad", http.StatusServiceUnavailable
			}
			text := c.Name
			if err != nil {
				text += ": " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			switch {
			case verbose:
				lines = append(lines, word+" "+text)
			case err != nil:
				lines = append(lines, text)
			}
		}
		if !verbose && code == http.StatusOK {
			lines = append([]string{"ok"}, lines...)
		}
		w.WriteHeader(code)
		fmt.Fprintln(w, strings.Join(lines, "\n"))
	}
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /readyz", ready)
	return mux
}

// WarningWord begins the line of a failed check with WarnOnly in a verbose response.
const WarningWord = "warning"

// Serve serves on a listener until the context ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
