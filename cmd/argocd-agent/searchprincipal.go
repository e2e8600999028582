package main

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/search"
)

// principalSearch configures the search API.
type principalSearch struct {
	port      int
	extension string // Secret
}

func (s *principalSearch) declare(f *flags) {
	f.heading("Search")
	f.add("search-port", optionalPort(&s.port, 0),
		"Port of the search API, with the certificate of --listen-port. Callers are users of the hub's API server, and see what they can list there. "+
			"The principal needs rbac-search.yaml. 0 turns it off.")
	f.add("search-extension-secret", text(&s.extension, "SECRET", ""),
		"Secret with a token of at least 32 bytes (key token), with which argocd-server authenticates at the search API.").
		defaultText("argocd-server is refused")
}

func (s *principalSearch) check(f *flags, plaintext bool) {
	f.requires(s.port != 0, "--search-port", "search-extension-secret")
	if s.port != 0 {
		f.conflicts(plaintext, "insecure-plaintext", "the search API needs a certificate", "search-port")
	}
	if s.extension != "" {
		checkSecret(f, "search-extension-secret", s.extension)
	}
}

// config opens the listener and completes cfg.
func (s *principalSearch) config(ctx context.Context, host string, open *listeners, cfg *principal.Config) (err error) {
	if s.port == 0 {
		return nil
	}
	cfg.Search.TLS = identity.AnyClientTLS(cfg.TLS)
	if s.extension != "" {
		cfg.Search.Extension = new(search.Extension)
		cfg.Secrets = mergeHandlers(cfg.Secrets, secretHandlers{s.extension: cfg.Search.Extension.Load})
	}
	cfg.Search.Listener, err = open.open(ctx, "searches", hostPort(host, s.port))
	return err
}
