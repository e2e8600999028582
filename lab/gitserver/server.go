package gitserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServerOptions configures a server.
type ServerOptions struct {
	// Certificate is the certificate for HTTPS. If nil, the server uses plain HTTP.
	Certificate *tls.Certificate
	// Address to listen on. If empty, a free port of 127.0.0.1. A restarted lab uses the previous address, because URLs
	// are stored elsewhere.
	Address string
	// ErrorLog receives errors outside of responses. If nil, they are discarded.
	ErrorLog io.Writer
}

// Server serves the repositories of a store over smart HTTP.
type Server struct {
	store    *Store
	scheme   string
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	served   chan error

	mu       sync.Mutex // guards closed, which must be set before the wait for requests
	closed   bool
	requests sync.WaitGroup // running requests, whose git processes Close waits for
}

// Serve starts a server for store.
func Serve(store *Store, opts ServerOptions) (*Server, error) {
	if _, err := lookProgram("git"); err != nil {
		return nil, err
	}
	address := opts.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start the Git server: %w", err)
	}
	errorLog := opts.ErrorLog
	if errorLog == nil {
		errorLog = io.Discard
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{store: store, scheme: "http", listener: listener, cancel: cancel, served: make(chan error, 1)}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          log.New(errorLog, "gitserver: ", log.LstdFlags),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	serve := func() error { return s.http.Serve(listener) }
	if opts.Certificate != nil {
		s.scheme = "https"
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*opts.Certificate}, MinVersion: tls.VersionTLS12}
		serve = func() error { return s.http.ServeTLS(listener, "", "") }
	}
	go func() { s.served <- serve() }()
	return s, nil
}

// Addr returns the address of the listener, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL returns the base URL of the server, such as https://127.0.0.1:40123.
func (s *Server) URL() string { return s.scheme + "://" + s.Addr() }

// RepoURL returns the clone URL of a repository.
func (s *Server) RepoURL(name string) string { return s.URL() + "/" + name + ".git" }

// Close ends the server and running requests, and waits for the last git process.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	err := s.http.Close()
	s.requests.Wait()
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	s.served <- http.ErrServerClosed // so that a second Close returns as well
	if err != nil {
		return fmt.Errorf("close the Git server: %w", err)
	}
	return nil
}

// begin counts a started request. It returns false if the server is closing.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.requests.Add(1)
	}
	return !s.closed
}
