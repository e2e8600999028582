package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// ClusterJoin is a workload cluster that joins a hub: from a token's line in a
// Secret to the Secrets that an agent connects with.
type ClusterJoin struct {
	Secrets pki.Secrets // of Argo CD's namespace

	// Names of Secrets; empty: the usual ones.
	Token, Client, Authority string

	Proxy     func(*http.Request) (*url.URL, error) // as of DialerConfig
	WebSocket bool                                  // likewise
	Explain   func(error) error                     // likewise
	Now       func() time.Time                      // nil: the clock
	Log       *slog.Logger
}

// TokenKey is where a Secret has the token's line.
const TokenKey = "token"

func (j ClusterJoin) withDefaults() ClusterJoin {
	j.Token = or(j.Token, pki.JoinSecret)
	j.Client = or(j.Client, pki.ClientSecret)
	j.Authority = or(j.Authority, pki.AuthoritySecret)
	if j.Now == nil {
		j.Now = time.Now
	}
	return j
}

// PutToken keeps a token's line in the cluster, for Do. One that is there is
// replaced, with the key that was made for it.
func (j ClusterJoin) PutToken(ctx context.Context, line string) error {
	j = j.withDefaults()
	if _, err := pki.ParseToken(line); err != nil {
		return err
	}
	s, err := j.Secrets.Get(ctx, j.Token)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", j.Token, err)
	}
	next := &pki.Secret{Name: j.Token, Type: "Opaque", Data: map[string][]byte{TokenKey: []byte(line)}}
	if s != nil {
		if string(s.Data[TokenKey]) == line {
			return nil
		}
		next.Revision, next.Type, next.Labels, next.Annotations = s.Revision, s.Type, s.Labels, s.Annotations
	}
	stored, err := j.Secrets.Put(ctx, next)
	if err == nil && !stored {
		err = pki.ErrBusy
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", j.Token, err)
	}
	return nil
}

// Needed reports whether the cluster has a token, and no certificate that is still
// good.
func (j ClusterJoin) Needed(ctx context.Context) (bool, error) {
	j = j.withDefaults()
	client, err := j.Secrets.Get(ctx, j.Client)
	if err != nil {
		return false, fmt.Errorf("read Secret %s: %w", j.Client, err)
	}
	if client != nil {
		if certs, err := pki.Certificates(client.Data[pki.CertKey]); err == nil && j.Now().Before(certs[0].NotAfter) {
			return false, nil
		}
	}
	token, err := j.Secrets.Get(ctx, j.Token)
	if err != nil {
		return false, fmt.Errorf("read Secret %s: %w", j.Token, err)
	}
	return token != nil && len(token.Data[TokenKey]) > 0, nil
}

// Do joins once. It can be repeated after whatever went wrong: the key that it
// asks with is kept beside the token, and the hub knows it again. An *EnrollError
// is the hub's own answer.
func (j ClusterJoin) Do(ctx context.Context) (Joined, error) {
	j = j.withDefaults()
	client, err := j.Secrets.Get(ctx, j.Client)
	if err != nil {
		return Joined{}, fmt.Errorf("read Secret %s: %w", j.Client, err)
	}
	if client != nil && client.ManagedBy() != "" { // it would be written over again
		return Joined{}, &pki.NotManagedError{Secret: j.Client, ManagedBy: client.ManagedBy()}
	}
	token, held, request, err := j.prepare(ctx)
	if err != nil {
		return Joined{}, err
	}
	asked := j.Now()
	joined, err := Join(ctx, DialerConfig{
		Address: token.Address, Log: j.Log, Proxy: j.Proxy, WebSocket: j.WebSocket, Explain: j.Explain,
		TLS: func() (*tls.Config, error) { return token.Pin.ClientTLS(token.Host(), j.Now), nil },
	}, JoinRequest{Agent: token.Agent, TokenID: token.ID, TokenValue: token.Secret, Request: request, Clock: asked})
	if err != nil {
		return Joined{}, err
	}
	if err := CheckIssued(joined.Certificate, held.Data[pki.KeyKey], token.Agent, j.Now()); err != nil {
		return Joined{}, err
	}
	if err := StoreTrust(ctx, j.Secrets, j.Authority, joined.Bundle); err != nil && !errors.As(err, new(*pki.NotManagedError)) {
		return Joined{}, err
	}
	stored, err := pki.PutPair(ctx, j.Secrets, j.Client, client, pki.Pair{Cert: joined.Chain, Key: held.Data[pki.KeyKey]}, nil)
	if err == nil && !stored {
		err = fmt.Errorf("write Secret %s: %w", j.Client, pki.ErrBusy)
	}
	if err != nil {
		return Joined{}, err
	}
	_, err = j.Secrets.Delete(ctx, held) // it is of no use to anybody any more
	if err != nil {
		err = fmt.Errorf("delete Secret %s: %w", j.Token, err)
	}
	return joined, err
}

// prepare reads the token and makes the request, with a key that is kept before
// it is used.
func (j ClusterJoin) prepare(ctx context.Context) (token pki.Token, held *pki.Secret, request []byte, err error) {
	held, err = j.Secrets.Get(ctx, j.Token)
	if err == nil && held == nil {
		err = errors.New("there is none")
	}
	if err != nil {
		return token, nil, nil, fmt.Errorf("read Secret %s: %w", j.Token, err)
	}
	if token, err = pki.ParseToken(string(held.Data[TokenKey])); err != nil {
		return token, nil, nil, fmt.Errorf("the Secret %s: %w", j.Token, err)
	}
	request, key, err := pki.NewRequest(token.Agent, held.Data[pki.KeyKey])
	if err != nil || bytes.Equal(key, held.Data[pki.KeyKey]) {
		return token, held, request, err
	}
	held.Data[pki.KeyKey] = key
	stored, err := j.Secrets.Put(ctx, held)
	if err == nil && !stored {
		err = pki.ErrBusy
	}
	if err == nil {
		held, err = j.Secrets.Get(ctx, j.Token)
	}
	if err == nil && (held == nil || !bytes.Equal(held.Data[pki.KeyKey], key)) {
		err = pki.ErrBusy
	}
	if err != nil {
		return token, nil, nil, fmt.Errorf("write Secret %s: %w", j.Token, err)
	}
	return token, held, request, nil
}

// CheckIssued makes sure that a certificate is what was asked for, and of use to
// whoever has this clock.
func CheckIssued(c Certificate, key []byte, agent string, now time.Time) error {
	pair, err := tls.X509KeyPair(c.Chain, key)
	if err != nil {
		return fmt.Errorf("the certificate that the hub has issued: %w", err)
	}
	if _, err := pki.Certificates(c.Bundle); err != nil {
		return fmt.Errorf("the CAs that the hub has sent: %w", err)
	}
	switch leaf := pair.Leaf; {
	case leaf.Subject.CommonName != agent:
		return fmt.Errorf("the hub has issued a certificate for %.80q instead of %q", leaf.Subject.CommonName, agent)
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate that the hub has issued is good from %s to %s, but the clock here says %s: set the clock right",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// StoreTrust writes into a Secret whom to believe, unless it says so already. A
// *pki.ForeignError says that the Secret is somebody else's.
func StoreTrust(ctx context.Context, secrets pki.Secrets, name string, bundle []byte) error {
	if _, err := pki.Certificates(bundle); err != nil {
		return fmt.Errorf("the CAs that the hub has sent: %w", err)
	}
	s, err := secrets.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", name, err)
	}
	if s != nil && bytes.Equal(s.Data[pki.BundleKey], bundle) {
		return nil
	}
	if s != nil && !s.Managed() {
		return &pki.NotManagedError{Secret: name}
	}
	stored, err := pki.PutBundle(ctx, secrets, name, s, bundle)
	if err == nil && !stored {
		err = fmt.Errorf("write Secret %s: %w", name, pki.ErrBusy)
	}
	return err
}
