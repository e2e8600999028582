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
	"slices"
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

// CreateToken creates a join token. The address is the principal's, as seen from the agent's cluster.
func (h *Manager) CreateToken(ctx context.Context, address string, who JoinGrant, life time.Duration) (Token, error) {
	if err := checkAddress(address); err != nil {
		return Token{}, fmt.Errorf("address of the hub: %w", err)
	}
	if err := checkAgent(who.Agent); err != nil {
		return Token{}, err
	}
	if who.Mode != "managed" && who.Mode != "autonomous" {
		return Token{}, fmt.Errorf("unknown mode %.40q: use managed or autonomous", who.Mode)
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
	labels, err := json.Marshal(who.Labels)
	if err != nil {
		return Token{}, fmt.Errorf("encode labels: %w", err)
	}
	t := Token{Address: address, Agent: who.Agent, Pin: a.Pin()}
	t.ID, t.Secret = newTokenSecret()
	made, err := h.Secrets.Put(ctx, &Secret{
		Name: joinPrefix + t.ID, Type: typeOpaque, Labels: map[string]string{JoinLabel: who.Agent},
		Data: map[string][]byte{
			hashField: []byte(hex.EncodeToString(tokenHash(t.Secret))), agentField: []byte(who.Agent), modeField: []byte(who.Mode),
			labelsField: labels, expiresField: []byte(h.now().Add(life).UTC().Format(time.RFC3339)),
		},
	})
	if err == nil && !made {
		err = ErrBusy
	}
	if err != nil {
		return Token{}, fmt.Errorf("write Secret %s%s: %w", joinPrefix, t.ID, err)
	}
	return t, nil
}

// RefusalError says why a join token is not accepted. The message is shown on the joining cluster.
type RefusalError struct{ Message string }

func (r *RefusalError) Error() string { return r.Message }

func refuse(format string, args ...any) error { return &RefusalError{fmt.Sprintf(format, args...)} }

const createAnother = "create another one on the hub with `argocd-agentctl agent join-token %s`"

// Check validates a join token without using it.
func (h *Manager) Check(ctx context.Context, id, secret, agent string) (JoinGrant, error) {
	if err := checkAgent(agent); err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	_, who, err := h.token(ctx, id, secret, agent)
	return who, err
}

// Redeem validates a join token and marks it as used by the key of this request. A client that retries with the same key,
// because the response was lost, succeeds while the token is valid. A client with another key gets a *RefusalError.
func (h *Manager) Redeem(ctx context.Context, id, secret, agent string, request []byte) (JoinGrant, error) {
	if err := checkAgent(agent); err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	r, err := ReadRequest(request, agent)
	if err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	key := []byte(hex.EncodeToString(sum[:]))
	for range maxAttempts {
		s, who, err := h.token(ctx, id, secret, agent)
		if err != nil {
			return JoinGrant{}, err
		}
		switch by := s.Data[usedByField]; {
		case bytes.Equal(by, key):
			return who, nil
		case len(by) > 0:
			return JoinGrant{}, refuse("this join token was used at %s by another key; it is valid for one cluster, once: "+createAnother, s.Data[usedField], agent)
		}
		next := s.clone()
		next.Data[usedByField], next.Data[usedField] = key, []byte(h.now().UTC().Format(time.RFC3339))
		stored, err := h.Secrets.Put(ctx, next)
		if err != nil {
			return JoinGrant{}, fmt.Errorf("write Secret %s: %w", s.Name, err)
		}
		if stored {
			return who, nil
		}
	}
	return JoinGrant{}, fmt.Errorf("write Secret %s%s: %w", joinPrefix, id, ErrBusy)
}

// token returns the Secret of a valid token. The errors reveal nothing to a client that does not know the secret.
func (h *Manager) token(ctx context.Context, id, secret, agent string) (*Secret, JoinGrant, error) {
	unknown := refuse("this join token is not known on the hub: it was deleted, expired long ago, or is of another hub; "+createAnother, agent)
	if !isTokenID(id) {
		return nil, JoinGrant{}, unknown
	}
	s, err := h.Secrets.Get(ctx, joinPrefix+id)
	if err != nil {
		return nil, JoinGrant{}, fmt.Errorf("get Secret %s%s: %w", joinPrefix, id, err)
	}
	if s == nil {
		return nil, JoinGrant{}, unknown
	}
	hash, err := hex.DecodeString(string(s.Data[hashField]))
	if err != nil || subtle.ConstantTimeCompare(hash, tokenHash(secret)) != 1 {
		return nil, JoinGrant{}, unknown
	}
	info, err := readToken(s)
	if err != nil {
		return nil, JoinGrant{}, fmt.Errorf("parse Secret %s: %w", s.Name, err)
	}
	if info.Agent != agent {
		return nil, JoinGrant{}, refuse("this join token is for agent %q, not for %q: "+createAnother, info.Agent, agent, agent)
	}
	if !h.now().Before(info.Expires) {
		return nil, JoinGrant{}, refuse("this join token expired at %s: "+createAnother, formatTime(info.Expires), agent)
	}
	return s, info.JoinGrant, nil
}

// TokenInfo describes a join token.
type TokenInfo struct {
	JoinGrant
	ID      string
	Expires time.Time
	Used    time.Time // zero if unused
}

func readToken(s *Secret) (TokenInfo, error) {
	info := TokenInfo{ID: strings.TrimPrefix(s.Name, joinPrefix)}
	info.Agent, info.Mode = string(s.Data[agentField]), string(s.Data[modeField])
	if err := json.Unmarshal(s.Data[labelsField], &info.Labels); err != nil {
		return info, fmt.Errorf("%s: %w", labelsField, err)
	}
	var err error
	if info.Expires, err = time.Parse(time.RFC3339, string(s.Data[expiresField])); err != nil {
		return info, fmt.Errorf("%s: %w", expiresField, err)
	}
	if used := s.Data[usedField]; len(used) > 0 {
		if info.Used, err = time.Parse(time.RFC3339, string(used)); err != nil {
			return info, fmt.Errorf("%s: %w", usedField, err)
		}
	}
	return info, nil
}

// Tokens lists all join tokens, including used and expired ones.
func (h *Manager) Tokens(ctx context.Context) ([]TokenInfo, error) {
	secrets, err := h.Secrets.List(ctx, JoinLabel)
	if err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	var all []TokenInfo
	for _, s := range secrets {
		if info, err := readToken(s); err == nil {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b TokenInfo) int { return strings.Compare(a.Agent+" "+a.ID, b.Agent+" "+b.ID) })
	return all, nil
}

// DeleteTokens deletes all join tokens of an agent and returns how many.
func (h *Manager) DeleteTokens(ctx context.Context, agent string) (int, error) {
	return h.deleteTokens(ctx, func(s *Secret) bool { return s.Labels[JoinLabel] == agent })
}

// DeleteExpiredTokens deletes join tokens that expired more than tokenGrace ago and returns how many.
func (h *Manager) DeleteExpiredTokens(ctx context.Context) (int, error) {
	return h.deleteTokens(ctx, func(s *Secret) bool {
		info, err := readToken(s)
		return err == nil && h.now().After(info.Expires.Add(tokenGrace))
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
		if err != nil {
			failed = append(failed, fmt.Errorf("delete Secret %s: %w", s.Name, err))
		}
		if gone {
			n++
		}
	}
	return n, errors.Join(failed...)
}
