package grpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// invitation is a hub that lets one cluster in, and the line for it.
func invitation(t *testing.T) (hub *pki.Manager, h *hub, reg *registrar, line string) {
	t.Helper()
	hub = &pki.Manager{Secrets: &pki.FakeSecrets{}}
	a, _, err := hub.Init(t.Context())
	must(t, err)
	reg = newRegistrar()
	reg.join = func(ctx context.Context, r enroll.JoinRequest) (enroll.Joined, error) {
		if _, err := hub.Redeem(ctx, r.TokenID, r.TokenValue, r.Agent, r.Request); err != nil {
			return enroll.Joined{}, &enroll.Error{Message: err.Error()}
		}
		issued, err := hub.Sign(ctx, r.Request, r.Agent)
		return enroll.Joined{Certificate: enroll.Certificate{Chain: issued.Cert, Bundle: issued.Bundle, Clock: time.Now()}, Mode: "managed"}, err
	}
	h = startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	token, err := hub.CreateToken(t.Context(), h.address, pki.JoinGrant{Agent: "w1", Mode: "managed"}, time.Hour)
	must(t, err)
	return hub, h, reg, token.String()
}

func TestClusterJoin_TriesTheNextAddress(t *testing.T) {
	leakCheck(t)
	_, h, reg, line := invitation(t)
	_, port, err := net.SplitHostPort(h.address)
	must(t, err)
	unreachable := net.JoinHostPort("127.0.0.2", port)
	join := func(line string) error {
		j := enroll.ClusterJoin{Secrets: &pki.FakeSecrets{}, Join: JoinWith(ClientConfig{}, nil)}
		must(t, j.PutToken(t.Context(), line))
		_, err := j.Do(t.Context())
		return err
	}
	must(t, join(strings.Replace(line, h.address, unreachable+","+h.address, 1)))

	// The answer of a hub counts: another hub does not know more about the token.
	asked := 0
	reg.join = func(context.Context, enroll.JoinRequest) (enroll.Joined, error) {
		asked++
		return enroll.Joined{}, &enroll.Error{Message: "not known on the hub"}
	}
	if err := join(strings.Replace(line, h.address, h.address+","+unreachable, 1)); err == nil || strings.Contains(err.Error(), "127.0.0.2") || asked != 1 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
	err = join(strings.Replace(line, h.address, unreachable+","+h.address, 1))
	if err == nil || !strings.Contains(err.Error(), "127.0.0.2") || !strings.Contains(err.Error(), "not known on the hub") {
		t.Errorf("error %v", err)
	}
}

func TestClusterJoin_StoresCertificateAndTrust(t *testing.T) {
	leakCheck(t)
	_, _, _, line := invitation(t)
	secrets := &pki.FakeSecrets{}
	j := enroll.ClusterJoin{Secrets: secrets, Join: JoinWith(ClientConfig{}, nil)}
	if needed, err := j.Needed(t.Context()); needed || err != nil {
		t.Errorf("%v, %v: there is no token", needed, err)
	}
	must(t, j.PutToken(t.Context(), line))
	if needed, err := j.Needed(t.Context()); !needed || err != nil {
		t.Errorf("%v, %v", needed, err)
	}
	joined, err := j.Do(t.Context())
	must(t, err)
	client, err := secrets.Get(t.Context(), pki.ClientSecret)
	must(t, err)
	if joined.Mode != "managed" || !client.Managed() || !bytes.Equal(client.Data[pki.CertKey], joined.Chain) {
		t.Errorf("%+v", joined)
	}
	must(t, enroll.CheckIssued(joined.Certificate, client.Data[pki.KeyKey], "w1", time.Now()))
	if ca, err := secrets.Get(t.Context(), pki.AuthoritySecret); err != nil || !bytes.Equal(ca.Data[pki.BundleKey], joined.Bundle) {
		t.Errorf("the CAs were not stored: %v", err)
	}
	if token, _ := secrets.Get(t.Context(), pki.JoinSecret); token != nil {
		t.Error("the token is still there")
	}
	if needed, err := j.Needed(t.Context()); needed || err != nil {
		t.Errorf("%v, %v: it has a certificate", needed, err)
	}
}

func TestClusterJoin_ContinuesAfterACrash(t *testing.T) {
	leakCheck(t)
	_, _, reg, line := invitation(t)
	secrets := &pki.FakeSecrets{}
	j := enroll.ClusterJoin{Secrets: secrets, Join: JoinWith(ClientConfig{}, nil)}
	must(t, j.PutToken(t.Context(), line))
	inner := reg.join
	reg.join = func(ctx context.Context, r enroll.JoinRequest) (enroll.Joined, error) { // the hub has used up the token, and dies
		_, _ = inner(ctx, r)
		return enroll.Joined{}, errors.New("gone")
	}
	if _, err := j.Do(t.Context()); err == nil {
		t.Fatal("it worked")
	}
	reg.join = inner
	if _, err := j.Do(t.Context()); err != nil {
		t.Errorf("the same cluster with the same key is locked out: %v", err)
	}
	// Anybody else with the same line is.
	thief := enroll.ClusterJoin{Secrets: &pki.FakeSecrets{}, Join: JoinWith(ClientConfig{}, nil)}
	must(t, thief.PutToken(t.Context(), line))
	if _, err := thief.Do(t.Context()); !errors.As(err, new(*enroll.Error)) || !strings.Contains(err.Error(), "was used at") {
		t.Errorf("error %v", err)
	}
}

func TestClusterJoin_KeepsSecretsOfOthers(t *testing.T) {
	leakCheck(t)
	_, _, _, line := invitation(t)
	secrets := &pki.FakeSecrets{}
	j := enroll.ClusterJoin{Secrets: secrets, Join: JoinWith(ClientConfig{}, nil)}
	must(t, j.PutToken(t.Context(), line))
	err := secrets.Put(t.Context(), &pki.Secret{Name: pki.AuthoritySecret, Data: map[string][]byte{pki.BundleKey: []byte("theirs")}})
	must(t, err)
	_, err = j.Do(t.Context())
	must(t, err)
	if ca, _ := secrets.Get(t.Context(), pki.AuthoritySecret); string(ca.Data[pki.BundleKey]) != "theirs" {
		t.Error("it was written")
	}
	kept := &pki.FakeSecrets{}
	err = kept.Put(t.Context(), &pki.Secret{Name: pki.ClientSecret, Annotations: map[string]string{"cert-manager.io/certificate-name": "x"}})
	must(t, err)
	k := enroll.ClusterJoin{Secrets: kept, Join: JoinWith(ClientConfig{}, nil)}
	must(t, k.PutToken(t.Context(), line))
	if _, err := k.Do(t.Context()); !errors.As(err, new(*pki.NotManagedError)) {
		t.Errorf("error %v", err)
	}
	if err := j.PutToken(t.Context(), "join me"); !errors.Is(err, pki.ErrNotAToken) {
		t.Errorf("error %v", err)
	}
}
