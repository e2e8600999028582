package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof" // also registers itself with the default mux, which is not served
	"time"
)

// listeners are the open listeners, so that they can be closed together.
type listeners []net.Listener

// open listens on an address for clients of a kind.
func (l *listeners) open(ctx context.Context, clients, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", clients, err)
	}
	*l = append(*l, listener)
	return listener, nil
}

// openPort listens on all addresses. If port is 0, it returns nil.
func (l *listeners) openPort(ctx context.Context, clients string, port int) (net.Listener, error) {
	if port == 0 {
		return nil, nil
	}
	return l.open(ctx, clients, hostPort("", port))
}

// close closes all listeners. The component may have closed some of them.
func (l *listeners) close() {
	for _, listener := range *l {
		_ = listener.Close()
	}
}

// withProfiler runs work and serves Go's profiler on the loopback address, unless port is 0.
func withProfiler(ctx context.Context, port int, log *slog.Logger, work func(context.Context) error) error {
	if port == 0 {
		return work(ctx)
	}
	listener, err := new(listeners).open(ctx, "the profiler", hostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.WarnContext(ctx, "Profiler stopped", "error", err)
		}
	}()
	log.InfoContext(ctx, "Profiler started", "address", listener.Addr().String())
	err = work(ctx)
	_ = server.Close()
	<-ended
	return err
}
