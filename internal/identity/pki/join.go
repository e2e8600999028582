package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// JoinGrant is what a join token permits.
type JoinGrant struct {
	Agent  string
	Mode   string            // managed or autonomous
	Labels map[string]string // of its cluster Secret
}

// Default and maximum lifetime of a join token.
const (
	TokenLifetime    = time.Hour
	MaxTokenLifetime = 7 * 24 * time.Hour
)

// Data of a token's Secret.
const (
	hashField    = "hash"
	agentField   = "agent"
	modeField    = "mode"
	labelsField  = "labels"
	expiresField = "expires"
	usedField    = "used"         // time
	usedByField  = "used-by"      // SHA-256 of the public key of the certificate request
	tokenGrace   = 24 * time.Hour // a used or expired token is kept as long, for error messages
)

// CreateToken creates a join token. The address is the principal's, as seen from the agent's cluster. Several are separated
// by commas.
func (h *Manager) CreateToken(ctx context.Context, address string, grant JoinGrant, life time.Duration) (Token, error) {
	t := Token{Address: address, Agent: grant.Agent}
	if err := checkAddresses(t); err != nil {
		return Token{}, fmt.Errorf("address of the hub: %w", err)
	}
	if err := checkAgent(grant.Agent); err != nil {
		return Token{}, err
	}
	if grant.Mode != "managed" && grant.Mode != "autonomous" {
		return Token{}, fmt.Errorf("unknown mode %.40q: use managed or autonomous", grant.Mode)
	}
	if life <= 0 || life > MaxTokenLifetime {
		return Token{}, fmt.Errorf("invalid token lifetime %s: the maximum is %s", life, MaxTokenLifetime)
	}
	a, err := h.Authority(ctx)
	if err != nil {
		return Token{}, err
	}
	if !a.CanIssue() {
		return Token{}, ErrNoKey
	}
	labels, err := json.Marshal(grant.Labels)
	if err != nil {
		return Token{}, fmt.Errorf("encode labels: %w", err)
	}
	t.Pin = a.Pin()
	t.ID, t.Secret = newTokenSecret()
	return t, h.Secrets.Put(ctx, &Secret{
		Name: joinPrefix + t.ID, Type: typeOpaque, Labels: map[string]string{JoinLabel: grant.Agent},
		Data: map[string][]byte{
			hashField: []byte(hex.EncodeToString(tokenHash(t.Secret))), agentField: []byte(grant.Agent), modeField: []byte(grant.Mode),
			labelsField: labels, expiresField: []byte(h.now().Add(life).UTC().Format(time.RFC3339)),
		},
	})
}

// RefusalError says why a join token is not accepted. The message is shown on the joining cluster.
type RefusalError struct{ Message string }

func (r *RefusalError) Error() string { return r.Message }

func refuse(format string, args ...any) error { return &RefusalError{fmt.Sprintf(format, args...)} }

const createAnother = "create another one on the hub with `argocd-agentctl agent join-token %s`"

// Check validates a join token without using it.
func (h *Manager) Check(ctx context.Context, id, secret, agent string) (JoinGrant, error) {
	return h.redeem(ctx, id, secret, agent, nil)
}

// Redeem validates a join token and marks it as used by the key of this request. A client that retries with the same key,
// because the response was lost, succeeds while the token is valid. A client with another key gets a *RefusalError.
func (h *Manager) Redeem(ctx context.Context, id, secret, agent string, request []byte) (JoinGrant, error) {
	r, err := ReadRequest(request, agent)
	if err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	return h.redeem(ctx, id, secret, agent, []byte(hex.EncodeToString(sum[:])))
}

// redeem validates a join token. If key is not nil, it marks the token as used by the key.
func (h *Manager) redeem(ctx context.Context, id, secret, agent string, key []byte) (grant JoinGrant, err error) {
	if err := checkAgent(agent); err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	if !isTokenID(id) {
		return JoinGrant{}, refuseUnknown(agent)
	}
	err = update(ctx, h.Secrets, joinPrefix+id, func(s *Secret) (*Secret, error) {
		if grant, err = h.grantOf(s, secret, agent); err != nil || key == nil {
			return nil, err
		}
		switch by := s.Data[usedByField]; {
		case bytes.Equal(by, key):
			return nil, nil
		case len(by) > 0:
			return nil, refuse("this join token was used at %s by another key; it is valid for one cluster, once: "+createAnother, s.Data[usedField], agent)
		}
		next := s.clone()
		next.Data[usedByField], next.Data[usedField] = key, []byte(h.now().UTC().Format(time.RFC3339))
		return next, nil
	})
	return grant, err
}

// grantOf returns what a valid token permits. The errors reveal nothing to a client that does not know the secret.
func (h *Manager) grantOf(s *Secret, secret, agent string) (JoinGrant, error) {
	if s == nil {
		return JoinGrant{}, refuseUnknown(agent)
	}
	hash, err := hex.DecodeString(string(s.Data[hashField]))
	if err != nil || subtle.ConstantTimeCompare(hash, tokenHash(secret)) != 1 {
		return JoinGrant{}, refuseUnknown(agent)
	}
	grant, expires, err := readToken(s)
	switch {
	case err != nil:
		return JoinGrant{}, fmt.Errorf("parse Secret %s: %w", s.Name, err)
	case grant.Agent != agent:
		return JoinGrant{}, refuse("this join token is for agent %q, not for %q: "+createAnother, grant.Agent, agent, agent)
	case !h.now().Before(expires):
		return JoinGrant{}, refuse("this join token expired at %s: "+createAnother, formatTime(expires), agent)
	}
	return grant, nil
}

func refuseUnknown(agent string) error {
	return refuse("this join token is not known on the hub: it was deleted, expired long ago, or is of another hub; "+createAnother, agent)
}

func readToken(s *Secret) (grant JoinGrant, expires time.Time, err error) {
	grant.Agent, grant.Mode = string(s.Data[agentField]), string(s.Data[modeField])
	if err := json.Unmarshal(s.Data[labelsField], &grant.Labels); err != nil {
		return grant, expires, fmt.Errorf("%s: %w", labelsField, err)
	}
	if expires, err = time.Parse(time.RFC3339, string(s.Data[expiresField])); err != nil {
		return grant, expires, fmt.Errorf("%s: %w", expiresField, err)
	}
	return grant, expires, nil
}

// DeleteTokens deletes all join tokens of an agent and returns how many.
func (h *Manager) DeleteTokens(ctx context.Context, agent string) (int, error) {
	return h.deleteTokens(ctx, func(s *Secret) bool { return s.Labels[JoinLabel] == agent })
}

// DeleteExpiredTokens deletes join tokens that expired more than tokenGrace ago and returns how many.
func (h *Manager) DeleteExpiredTokens(ctx context.Context) (int, error) {
	return h.deleteTokens(ctx, func(s *Secret) bool {
		_, expires, err := readToken(s)
		return err == nil && h.now().After(expires.Add(tokenGrace))
	})
}

func (h *Manager) deleteTokens(ctx context.Context, over func(*Secret) bool) (int, error) {
	secrets, err := h.Secrets.List(ctx, JoinLabel)
	if err != nil {
		return 0, fmt.Errorf("list join tokens: %w", err)
	}
	n := 0
	var failed []error
	for _, s := range secrets {
		if !strings.HasPrefix(s.Name, joinPrefix) || !over(s) {
			continue
		}
		gone, err := h.Secrets.Delete(ctx, s)
		failed = append(failed, err)
		if gone {
			n++
		}
	}
	return n, errors.Join(failed...)
}
