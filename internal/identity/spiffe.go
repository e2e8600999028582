package identity

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// SPIFFESource is a Source with the identity of this process and the bundles of its trust domains from the SPIFFE
// Workload API. The API's server renews them.
type SPIFFESource struct {
	socket  string
	domains []string
	log     *slog.Logger

	mu      sync.Mutex
	current *Material
	bundles *x509bundle.Set
	logged  logonce.One
}

// NewSPIFFESource returns a source that is empty until Run. The socket is an address such as
// unix:///run/spire/sockets/agent.sock. Only peers of these trust domains are trusted. If there are none, only those of
// the domain of this process. Other federated domains are not trusted.
func NewSPIFFESource(socket string, domains []string, log *slog.Logger) (*SPIFFESource, error) {
	if err := CheckSocket(socket); err != nil {
		return nil, err
	}
	return &SPIFFESource{socket: socket, domains: domains, log: log}, nil
}

// CheckTrustDomain validates the name of a trust domain.
func CheckTrustDomain(name string) error {
	if domain, err := spiffeid.TrustDomainFromString(name); err != nil || domain.Name() != name {
		return fmt.Errorf("invalid SPIFFE trust domain %q, use for example example.org", name)
	}
	return nil
}

// TrustDomain returns the trust domain of a SPIFFE ID, or "" if the ID is invalid.
func TrustDomain(id string) string {
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		return ""
	}
	return parsed.TrustDomain().Name()
}

// trusted returns the bundles of the trusted domains.
func (w *SPIFFESource) trusted(own spiffeid.TrustDomain, all *x509bundle.Set) *x509bundle.Set {
	trusted := x509bundle.NewSet()
	for _, bundle := range all.Bundles() {
		domain := bundle.TrustDomain()
		if slices.Contains(w.domains, domain.Name()) || len(w.domains) == 0 && domain == own {
			trusted.Add(bundle)
		}
	}
	return trusted
}

// CheckSocket validates an address of the Workload API.
func CheckSocket(socket string) error {
	if err := workloadapi.ValidateAddress(socket); err != nil {
		return fmt.Errorf("invalid SPIFFE Workload API address %q, use for example unix:///run/spire/sockets/agent.sock: %w", socket, err)
	}
	return nil
}

// CheckSPIFFEID validates a SPIFFE ID.
func CheckSPIFFEID(id string) error {
	if _, err := spiffeid.FromString(id); err != nil {
		return fmt.Errorf("invalid SPIFFE ID %q, use for example spiffe://example.org/argocd-agent/principal: %w", id, err)
	}
	return nil
}

// Run watches the Workload API until the context ends. While the API is unavailable, the last material stays in use.
func (w *SPIFFESource) Run(ctx context.Context) error {
	for {
		if err := w.watch(ctx); ctx.Err() == nil {
			w.logFailure(err)
		}
		if !backoff.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

func (w *SPIFFESource) watch(ctx context.Context) error {
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(w.socket), workloadapi.WithLogger(spiffeLogger{w}))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", w.socket, err)
	}
	defer func() { _ = client.Close() }()
	return client.WatchX509Context(ctx, w)
}

func (w *SPIFFESource) OnX509ContextUpdate(update *workloadapi.X509Context) {
	if len(update.SVIDs) == 0 {
		w.logFailure(errors.New("no identity is registered for this process"))
		return
	}
	svid := update.DefaultSVID()
	m := &Material{Certificate: tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}, pool: x509.NewCertPool()}
	for _, cert := range svid.Certificates {
		m.Certificate.Certificate = append(m.Certificate.Certificate, cert.Raw)
	}
	bundles := w.trusted(svid.ID.TrustDomain(), update.Bundles)
	for _, bundle := range bundles.Bundles() {
		m.CAs = append(m.CAs, bundle.X509Authorities()...)
	}
	for _, ca := range m.CAs {
		m.pool.AddCert(ca)
	}
	w.mu.Lock()
	first := w.current == nil
	w.current, w.bundles = m, bundles
	w.mu.Unlock()
	w.logged.Reset()
	w.log.Info("Received SPIFFE identity", "id", svid.ID.String(), "expires", m.NotAfter().UTC(), "renewed", !first)
}

func (w *SPIFFESource) OnX509ContextWatchError(err error) { w.logFailure(err) }

// logFailure logs a failure once.
func (w *SPIFFESource) logFailure(err error) {
	if err != nil && w.logged.Changed(err.Error()) {
		w.log.Warn("Failed to use SPIFFE Workload API, retrying", "socket", w.socket, "error", err)
	}
}

func (w *SPIFFESource) Material() (*Material, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		return nil, fmt.Errorf("no identity yet from the SPIFFE Workload API at %s: %s", w.socket, cmp.Or(w.logged.Get(), "no response yet"))
	}
	return w.current, nil
}

// ServerTLS is like the function ServerTLS. In addition, the trust domain of a peer's identity must have signed its
// certificate: a federated domain cannot sign for another.
func (w *SPIFFESource) ServerTLS(revoked *Revocations) *tls.Config {
	cfg := ServerTLS(w, revoked)
	inner := cfg.VerifyConnection
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if _, err := w.verify(state); err != nil {
			return err
		}
		return inner(state)
	}
	return cfg
}

// ClientTLS returns the configuration for one connection to a server with exactly that SPIFFE ID. Host names do not count.
func (w *SPIFFESource) ClientTLS(server string) (*tls.Config, error) {
	m, err := w.Material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &m.Certificate, nil
		},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by identity instead of by host name
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := w.verify(state)
			if err != nil {
				return err
			}
			if id.String() != server {
				return fmt.Errorf("the principal is %s, but %s is expected: change --spiffe-server-id or the address", id, server)
			}
			return nil
		},
	}, nil
}

func (w *SPIFFESource) verify(state tls.ConnectionState) (spiffeid.ID, error) {
	w.mu.Lock()
	bundles := w.bundles
	w.mu.Unlock()
	if bundles == nil {
		_, err := w.Material()
		return spiffeid.ID{}, err
	}
	id, _, err := x509svid.Verify(state.PeerCertificates, bundles)
	if err != nil {
		subject := ""
		if len(state.PeerCertificates) > 0 {
			subject = clip(state.PeerCertificates[0].Subject.String())
		}
		return id, fmt.Errorf("the peer's certificate (subject %q, SPIFFE ID %q) is not signed by a trusted trust domain: correct its registration, or federate its domain and add it to --spiffe-trust-domains of the principal: %w", subject, id, err)
	}
	return id, nil
}

// spiffeLogger logs each warning of the library once.
type spiffeLogger struct{ w *SPIFFESource }

func (q spiffeLogger) Debugf(string, ...any) {}
func (q spiffeLogger) Infof(string, ...any)  {}
func (q spiffeLogger) Warnf(format string, args ...any) {
	q.w.logFailure(fmt.Errorf(format, args...))
}

func (q spiffeLogger) Errorf(format string, args ...any) {
	q.w.logFailure(fmt.Errorf(format, args...))
}
