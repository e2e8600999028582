package enroll

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// ClusterJoin joins a workload cluster to a hub: it exchanges the token in a Secret for the Secrets that an agent
// connects with.
type ClusterJoin struct {
	Secrets pki.Secrets // of the Argo CD namespace

	// Names of Secrets. If empty, the default ones.
	Token, Client, Authority string

	// Join sends the request to the hub of a token.
	Join func(context.Context, pki.Token, JoinRequest) (Joined, error)

	Now func() time.Time // if nil, time.Now
}

// TokenKey is the key of the token in its Secret.
const TokenKey = "token"

func (j ClusterJoin) withDefaults() ClusterJoin {
	j.Token = cmp.Or(j.Token, pki.JoinSecret)
	j.Client = cmp.Or(j.Client, pki.ClientSecret)
	j.Authority = cmp.Or(j.Authority, pki.AuthoritySecret)
	if j.Now == nil {
		j.Now = time.Now
	}
	return j
}

// PutToken stores a token in the cluster, for Do. It replaces another token and the key that was made for it.
func (j ClusterJoin) PutToken(ctx context.Context, token string) error {
	j = j.withDefaults()
	if _, err := pki.ParseToken(token); err != nil {
		return err
	}
	s, err := j.Secrets.Get(ctx, j.Token)
	if err != nil {
		return err
	}
	next := &pki.Secret{Name: j.Token, Type: "Opaque", Data: map[string][]byte{TokenKey: []byte(token)}}
	if s != nil {
		if string(s.Data[TokenKey]) == token {
			return nil
		}
		next.Revision, next.Type, next.Labels, next.Annotations = s.Revision, s.Type, s.Labels, s.Annotations
	}
	return j.Secrets.Put(ctx, next)
}

// Needed reports whether the cluster has a token and no valid certificate.
func (j ClusterJoin) Needed(ctx context.Context) (bool, error) {
	j = j.withDefaults()
	client, err := j.Secrets.Get(ctx, j.Client)
	if err != nil {
		return false, err
	}
	if client != nil {
		if certs, err := pki.Certificates(client.Data[pki.CertKey]); err == nil && j.Now().Before(certs[0].NotAfter) {
			return false, nil
		}
	}
	token, err := j.Secrets.Get(ctx, j.Token)
	return token != nil && len(token.Data[TokenKey]) > 0, err
}

// Do joins once. After an error it can be repeated: its key is stored with the token, and the hub recognizes it. An
// *Error is the hub's answer.
func (j ClusterJoin) Do(ctx context.Context) (Joined, error) {
	j = j.withDefaults()
	client, err := j.Secrets.Get(ctx, j.Client)
	if err != nil {
		return Joined{}, err
	}
	if client != nil && client.ManagedBy() != "" { // its manager would overwrite it again
		return Joined{}, &pki.NotManagedError{Secret: j.Client, ManagedBy: client.ManagedBy()}
	}
	token, stored, request, err := j.prepare(ctx)
	if err != nil {
		return Joined{}, err
	}
	joined, err := j.Join(ctx, token, JoinRequest{Agent: token.Agent, TokenID: token.ID, TokenValue: token.Secret, Request: request, Clock: j.Now()})
	if err != nil {
		return Joined{}, err
	}
	if err := CheckIssued(joined.Certificate, stored.Data[pki.KeyKey], token.Agent, j.Now()); err != nil {
		return Joined{}, err
	}
	if err := StoreTrust(ctx, j.Secrets, j.Authority, joined.Bundle); err != nil && !errors.As(err, new(*pki.NotManagedError)) {
		return Joined{}, err
	}
	if err := pki.PutPair(ctx, j.Secrets, j.Client, client, pki.Pair{Cert: joined.Chain, Key: stored.Data[pki.KeyKey]}, nil); err != nil {
		return Joined{}, err
	}
	_, err = j.Secrets.Delete(ctx, stored) // it cannot be used again
	return joined, err
}

// prepare reads the token and makes the request. It stores the key of the request before the key is used.
func (j ClusterJoin) prepare(ctx context.Context) (token pki.Token, stored *pki.Secret, request []byte, err error) {
	if stored, err = j.Secrets.Get(ctx, j.Token); err != nil {
		return token, nil, nil, err
	}
	if stored == nil {
		return token, nil, nil, fmt.Errorf("Secret %s not found", j.Token)
	}
	if token, err = pki.ParseToken(string(stored.Data[TokenKey])); err != nil {
		return token, nil, nil, fmt.Errorf("Secret %s: %w", j.Token, err)
	}
	request, key, err := pki.NewRequest(token.Agent, stored.Data[pki.KeyKey])
	if err != nil || bytes.Equal(key, stored.Data[pki.KeyKey]) {
		return token, stored, request, err
	}
	stored.Data[pki.KeyKey] = key
	if err = j.Secrets.Put(ctx, stored); err == nil {
		stored, err = j.Secrets.Get(ctx, j.Token)
	}
	if err == nil && (stored == nil || !bytes.Equal(stored.Data[pki.KeyKey], key)) {
		err = fmt.Errorf("write Secret %s: %w", j.Token, pki.ErrBusy)
	}
	return token, stored, request, err
}

// CheckIssued returns an error unless a certificate is the requested one and valid at this time.
func CheckIssued(c Certificate, key []byte, agent string, now time.Time) error {
	pair, err := tls.X509KeyPair(c.Chain, key)
	if err != nil {
		return fmt.Errorf("certificate that the hub issued: %w", err)
	}
	if _, err := pki.Certificates(c.Bundle); err != nil {
		return fmt.Errorf("CA certificates that the hub sent: %w", err)
	}
	switch leaf := pair.Leaf; {
	case leaf.Subject.CommonName != agent:
		return fmt.Errorf("the hub issued a certificate for %.80q instead of %q", leaf.Subject.CommonName, agent)
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate that the hub issued is valid from %s to %s, but the local time is %s: correct the clock",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// StoreTrust writes the CAs to trust into a Secret, unless it has them already. A *pki.NotManagedError means that
// another program manages the Secret.
func StoreTrust(ctx context.Context, secrets pki.Secrets, name string, bundle []byte) error {
	if _, err := pki.Certificates(bundle); err != nil {
		return fmt.Errorf("CA certificates that the hub sent: %w", err)
	}
	s, err := secrets.Get(ctx, name)
	switch {
	case err != nil || s != nil && bytes.Equal(s.Data[pki.BundleKey], bundle):
		return err
	case s != nil && !s.Managed():
		return &pki.NotManagedError{Secret: name}
	}
	return pki.PutBundle(ctx, secrets, name, s, bundle)
}
