package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// SPIFFESource has material from the SPIFFE Workload API: an identity of this
// process, and bundles of the trust domains that it may believe. Whoever serves
// that API replaces them long before they expire.
type SPIFFESource struct {
	socket string
	log    *slog.Logger

	mu      sync.Mutex
	current *Material
	bundles *x509bundle.Set
	said    string // the last failure that was logged
}

// NewWorkload returns a Workload that has nothing until it runs. The socket is
// an address such as unix:///run/spire/sockets/agent.sock.
func NewWorkload(socket string, log *slog.Logger) (*SPIFFESource, error) {
	if err := CheckSocket(socket); err != nil {
		return nil, err
	}
	return &SPIFFESource{socket: socket, log: log}, nil
}

// CheckSocket says what is wrong with an address of the Workload API.
func CheckSocket(socket string) error {
	if err := workloadapi.ValidateAddress(socket); err != nil {
		return fmt.Errorf("%q is no address of a SPIFFE Workload API, such as unix:///run/spire/sockets/agent.sock: %w", socket, err)
	}
	return nil
}

// CheckSPIFFEID says what is wrong with an identity.
func CheckSPIFFEID(id string) error {
	if _, err := spiffeid.FromString(id); err != nil {
		return fmt.Errorf("%q is no SPIFFE ID, such as spiffe://example.org/argocd-agent/principal: %w", id, err)
	}
	return nil
}

// Run follows the Workload API until the context ends. That the API is away is no
// reason to end: what was there stays in use.
func (w *SPIFFESource) Run(ctx context.Context) error {
	for {
		if err := w.follow(ctx); ctx.Err() == nil {
			w.complain(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (w *SPIFFESource) follow(ctx context.Context) error {
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(w.socket), workloadapi.WithLogger(spiffeLogger{w}))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", w.socket, err)
	}
	defer func() { _ = client.Close() }()
	return client.WatchX509Context(ctx, w)
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (w *SPIFFESource) OnX509ContextUpdate(update *workloadapi.X509Context) {
	if len(update.SVIDs) == 0 {
		w.complain(errors.New("it has no identity for this process: register one there"))
		return
	}
	svid := update.DefaultSVID()
	m := &Material{Certificate: tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}, pool: x509.NewCertPool()}
	for _, cert := range svid.Certificates {
		m.Certificate.Certificate = append(m.Certificate.Certificate, cert.Raw)
	}
	for _, bundle := range update.Bundles.Bundles() {
		m.CAs = append(m.CAs, bundle.X509Authorities()...)
	}
	for _, ca := range m.CAs {
		m.pool.AddCert(ca)
	}
	w.mu.Lock()
	first := w.current == nil
	w.current, w.bundles, w.said = m, update.Bundles, ""
	w.mu.Unlock()
	message := "the SPIFFE identity was renewed"
	if first {
		message = "this is the SPIFFE identity"
	}
	w.log.Info(message, "id", svid.ID.String(), "expires", m.NotAfter().UTC()) //nolint:sloglint // one of two constants
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher.
func (w *SPIFFESource) OnX509ContextWatchError(err error) { w.complain(err) }

// complain logs a failure, once.
func (w *SPIFFESource) complain(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	news := w.said != err.Error()
	w.said = err.Error()
	w.mu.Unlock()
	if news {
		w.log.Warn("the SPIFFE Workload API does not answer as it should; trying again", "socket", w.socket, "error", err)
	}
}

// Material implements Source.
func (w *SPIFFESource) Material() (*Material, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		why := "it has not answered yet"
		if w.said != "" {
			why = w.said
		}
		return nil, fmt.Errorf("there is no identity yet from the SPIFFE Workload API at %s: %s", w.socket, why)
	}
	return w.current, nil
}

// ServerTLS is like the function of that name. A peer has to be vouched for by
// the trust domain that its identity is of: one that is federated cannot vouch
// for another's.
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

// ClientTLS is the configuration of the next connection to a server of exactly
// that identity. Host names mean nothing to SPIFFE.
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
				return fmt.Errorf("the principal is %s, but %s is expected: change --spiffe-server-id, or the address", id, server)
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
		subject := "nobody"
		if len(state.PeerCertificates) > 0 {
			subject = clip(state.PeerCertificates[0].Subject.String())
		}
		return id, fmt.Errorf("the peer's certificate (subject %q, SPIFFE ID %q) is not vouched for by a trust domain that is believed here: federate it, or correct its registration: %w", subject, id, err)
	}
	return id, nil
}

// spiffeLogger passes on what the library has to say, once.
type spiffeLogger struct{ w *SPIFFESource }

func (q spiffeLogger) Debugf(string, ...any) {}
func (q spiffeLogger) Infof(string, ...any)  {}
func (q spiffeLogger) Warnf(format string, args ...any) {
	q.w.complain(fmt.Errorf(format, args...))
}

func (q spiffeLogger) Errorf(format string, args ...any) {
	q.w.complain(fmt.Errorf(format, args...))
}
