// Package observe lets people and machines look at a running program: probes
// and Prometheus metrics over HTTP. It knows nothing of what it shows.
package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Check reports whether a part of the program works; nil: it does.
type Check struct {
	Name string
	Run  func() error
	// WarnOnly: what is wrong is said, and does not make the program unready.
	WarnOnly bool
}

// Probes serves /healthz (ready) and /livez (the process answers). Ready means
// that every check passes; the answer names those that do not. With ?verbose it
// names all, one a line: ok, bad or remark, and which.
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
			said := c.Name
			if err != nil {
				said += ": " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			switch {
			case verbose:
				lines = append(lines, word+" "+said)
			case err != nil:
				lines = append(lines, said)
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

// WarningWord begins a line of a verbose answer about what is wrong although the
// program is ready.
const WarningWord = "remark"

// Metric is one family of samples.
type Metric struct {
	Name    string
	Help    string
	Counter bool // else a gauge
	Samples []Sample
}

// Sample is a value under labels, given as name, value, name, value …
type Sample struct {
	Labels []string
	Value  float64
}

// Counter is a family with one sample that only grows.
func Counter(name, help string, value float64) Metric {
	return Metric{Name: name, Help: help, Counter: true, Samples: []Sample{{Value: value}}}
}

// Gauge is a family with one sample that goes up and down.
func Gauge(name, help string, value float64) Metric {
	return Metric{Name: name, Help: help, Samples: []Sample{{Value: value}}}
}

// ProxyMetrics turns counts of proxied requests into a metric.
func ProxyMetrics(prefix string, each func(func(verb, code, refusedBy string, n uint64))) []Metric {
	m := Metric{Name: prefix + "_proxy_requests_total", Help: "Requests for objects, logs and terminals, by verb, code and the setting that refused them.", Counter: true}
	each(func(verb, code, refusedBy string, n uint64) {
		m.Samples = append(m.Samples, Sample{Labels: []string{"verb", verb, "code", code, "refused_by", refusedBy}, Value: float64(n)})
	})
	return []Metric{m}
}

// Metrics serves /metrics in Prometheus' text format, gathered when asked for.
func Metrics(gather func(context.Context) ([]Metric, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		metrics, err := gather(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		out := bufio.NewWriterSize(w, 32<<10)
		for _, m := range append(metrics, ProcessMetrics()...) {
			writeMetric(out, m)
		}
		_ = out.Flush() // the asker is gone; there is nobody to tell
	})
	return mux
}

// writeMetric makes no garbage: a principal with thousands of agents has some
// hundred thousand samples, and is asked for them twice a minute.
func writeMetric(w *bufio.Writer, m Metric) {
	kind := "gauge"
	if m.Counter {
		kind = "counter"
	}
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, kind)
	var line []byte
	for _, s := range m.Samples {
		line = append(line[:0], m.Name...)
		for i := 0; i+1 < len(s.Labels); i += 2 {
			line = append(line, "{,"[min(i, 1)])
			line = append(line, s.Labels[i]...)
			line = append(line, `="`...)
			line = appendEscaped(line, s.Labels[i+1])
			line = append(line, '"')
		}
		if len(s.Labels) > 0 {
			line = append(line, '}')
		}
		line = append(strconv.AppendFloat(append(line, ' '), s.Value, 'g', -1, 64), '\n')
		_, _ = w.Write(line) // Flush fails as well
	}
}

// appendEscaped adds a label's value as the text format wants it.
func appendEscaped(line []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			line = append(line, '\\', c)
		case '\n':
			line = append(line, `\n`...)
		default:
			line = append(line, c)
		}
	}
	return line
}

// Serve answers on a listener until the context ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
