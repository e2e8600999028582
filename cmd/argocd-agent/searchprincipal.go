package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/fleetui"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/search"
)

// principalSearch configures the search API.
type principalSearch struct {
	port      int
	extension string // Secret
	origins   []string
	url       string
}

func (s *principalSearch) declare(f *flags) {
	f.heading("Search")
	f.add("search-port", optionalPort(&s.port, 0),
		"Port of the search API, with the certificate of --listen-port. Callers are users of the hub's API server, and see what they can list there. "+
			"The principal needs rbac-search.yaml. 0 turns it off.")
	f.add("search-extension-secret", text(&s.extension, "SECRET", ""),
		"Secret with a token of at least 32 bytes (key token), with which argocd-server authenticates at the search API.").
		defaultText("argocd-server is refused")
	f.add("search-allowed-origins", list(&s.origins, "ORIGINS"),
		"Origins of other pages whose scripts may read the search API with a token, such as https://argocd.example.com for the page Fleet in Argo CD's UI.").
		defaultText("none")
	f.add("search-url", text(&s.url, "URL", ""),
		"URL at which browsers reach the search port, for the page Fleet in Argo CD's UI. It is part of /extension.js.").
		defaultText("the extension has no page Fleet")
}

func (s *principalSearch) check(f *flags, plaintext bool) {
	f.requires(s.port != 0, "--search-port", "search-extension-secret", "search-allowed-origins", "search-url")
	if s.port != 0 {
		f.conflicts(plaintext, "insecure-plaintext", "the search API needs a certificate", "search-port")
	}
	if s.extension != "" {
		checkSecret(f, "search-extension-secret", s.extension)
	}
	if u, err := url.Parse(s.url); s.url != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		f.failIf("search-url", errors.New("must be of the form https://HOST:PORT"))
	}
	for _, origin := range s.origins {
		f.failIf("search-allowed-origins", checkOrigin(origin))
	}
}

// checkOrigin accepts an origin as browsers send it.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || origin != u.Scheme+"://"+strings.ToLower(u.Host) {
		return fmt.Errorf("%q is not an origin: use https://HOST or https://HOST:PORT in lower case, without a path", origin)
	}
	return nil
}

// config opens the listener and completes cfg.
func (s *principalSearch) config(ctx context.Context, host string, open *listeners, cfg *principal.Config) (err error) {
	if s.port == 0 {
		return nil
	}
	cfg.Search.AllowedOrigins = s.origins
	cfg.Search.Page = fleetui.Handler(s.url)
	cfg.Search.TLS = identity.AnyClientTLS(cfg.TLS)
	if s.extension != "" {
		cfg.Search.Extension = new(search.Extension)
		cfg.ArgoSecrets = mergeHandlers(cfg.ArgoSecrets, secretHandlers{s.extension: cfg.Search.Extension.Load})
	}
	cfg.Search.Listener, err = open.open(ctx, "searches", hostPort(host, s.port))
	return err
}
