package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof" // registers itself with the default mux too, which nothing serves
	"strconv"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// listeners are those that were opened, so that they can be closed together.
type listeners []net.Listener

// open listens on an address. What it is for makes an error understandable.
func (l *listeners) open(ctx context.Context, what, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	*l = append(*l, listener)
	return listener, nil
}

// openPort listens on all addresses; port 0 means not at all.
func (l *listeners) openPort(ctx context.Context, what string, port int) (net.Listener, error) {
	if port == 0 {
		return nil, nil
	}
	return l.open(ctx, what, net.JoinHostPort("", itoa(port)))
}

// close closes those that are still open: an assembly closes what it serves.
func (l *listeners) close() {
	for _, listener := range *l {
		_ = listener.Close()
	}
}

// withProfiler runs work with Go's profiler beside it, for this machine only,
// unless port is 0.
func withProfiler(ctx context.Context, port int, log *slog.Logger, work func(context.Context) error) error {
	if port == 0 {
		return work(ctx)
	}
	var open listeners
	listener, err := open.open(ctx, "the profiler", net.JoinHostPort("127.0.0.1", itoa(port)))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: profiler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.WarnContext(ctx, "Profiler ended", "error", err)
		}
	}()
	log.InfoContext(ctx, "Started profiler", "address", listener.Addr().String())
	err = work(ctx)
	_ = server.Close()
	<-ended
	return err
}

func profiler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
