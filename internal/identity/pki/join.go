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

// JoinGrant is what a token is good for.
type JoinGrant struct {
	Agent  string
	Mode   string            // managed or autonomous
	Labels map[string]string // of its cluster Secret
}

// TokenLife is how long a token is good unless somebody says otherwise; and how
// long at most.
const (
	TokenLife    = time.Hour
	MaxTokenLife = 7 * 24 * time.Hour
)

// Data of a token's Secret.
const (
	hashField    = "hash"
	agentField   = "agent"
	modeField    = "mode"
	labelsField  = "labels"
	expiresField = "expires"
	usedField    = "used"         // when
	usedByField  = "used-by"      // SHA-256 of the public key that the certificate was asked for with
	tokenGrace   = 24 * time.Hour // a token that is over is kept so long, to be able to say what became of it
)

// CreateToken makes a token for an agent to join with. The address is the
// principal's, as the agent's cluster reaches it.
func (h *Manager) CreateToken(ctx context.Context, address string, who JoinGrant, life time.Duration) (Token, error) {
	if err := checkAddress(address); err != nil {
		return Token{}, fmt.Errorf("the hub's address: %w", err)
	}
	if err := checkAgent(who.Agent); err != nil {
		return Token{}, err
	}
	if who.Mode != "managed" && who.Mode != "autonomous" {
		return Token{}, fmt.Errorf("mode %.40q is unknown: it must be managed or autonomous", who.Mode)
	}
	if life <= 0 || life > MaxTokenLife {
		return Token{}, fmt.Errorf("a token cannot be good for %s: give at most %s", life, MaxTokenLife)
	}
	a, err := h.Authority(ctx)
	if err != nil {
		return Token{}, err
	}
	if !a.Issues() {
		return Token{}, ErrNoKey
	}
	labels, err := json.Marshal(who.Labels)
	if err != nil {
		return Token{}, fmt.Errorf("labels: %w", err)
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

// RefusalError says why a token is not accepted, in words for whoever tries to join.
type RefusalError struct{ Message string }

func (r *RefusalError) Error() string { return r.Message }

func refuse(format string, args ...any) error { return &RefusalError{fmt.Sprintf(format, args...)} }

const askForAnother = "ask on the hub for another: `argocd-agentctl agent join-token %s`"

// Check finds out whether a token is good for an agent, and what it says, without
// using it up.
func (h *Manager) Check(ctx context.Context, id, secret, agent string) (JoinGrant, error) {
	if err := checkAgent(agent); err != nil {
		return JoinGrant{}, refuse("%v", err)
	}
	_, who, err := h.token(ctx, id, secret, agent)
	return who, err
}

// Redeem takes a token in exchange for the right to have this request signed. It
// is marked as used, by the request's key, before it says so: whoever comes again
// with the same key, because the answer was lost, is let in again as long as the
// token is good; whoever comes with another key is not. A *RefusalError says why.
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
	for range attempts {
		s, who, err := h.token(ctx, id, secret, agent)
		if err != nil {
			return JoinGrant{}, err
		}
		switch by := s.Data[usedByField]; {
		case bytes.Equal(by, key):
			return who, nil
		case len(by) > 0:
			return JoinGrant{}, refuse("this join token was used at %s, by another key; it is good for one cluster, once: "+askForAnother, s.Data[usedField], agent)
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

// token finds the Secret of a token that is good for an agent. Who does not know
// the secret learns nothing of it.
func (h *Manager) token(ctx context.Context, id, secret, agent string) (*Secret, JoinGrant, error) {
	unknown := refuse("this join token is not known on the hub: it was withdrawn, expired long ago, or is another hub's; "+askForAnother, agent)
	if !isTokenID(id) {
		return nil, JoinGrant{}, unknown
	}
	s, err := h.Secrets.Get(ctx, joinPrefix+id)
	if err != nil {
		return nil, JoinGrant{}, fmt.Errorf("read Secret %s%s: %w", joinPrefix, id, err)
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
		return nil, JoinGrant{}, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	if info.Agent != agent {
		return nil, JoinGrant{}, refuse("this join token is for the agent %q, not for %q: "+askForAnother, info.Agent, agent, agent)
	}
	if !h.now().Before(info.Expires) {
		return nil, JoinGrant{}, refuse("this join token expired at %s: "+askForAnother, day(info.Expires), agent)
	}
	return s, info.JoinGrant, nil
}

// TokenInfo is what the hub knows of a token.
type TokenInfo struct {
	JoinGrant
	ID      string
	Expires time.Time
	Used    time.Time // zero: not yet
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

// Tokens lists the tokens that there are, used and expired ones too.
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

// DeleteTokens deletes an agent's tokens, used or not, and returns how many.
func (h *Manager) DeleteTokens(ctx context.Context, agent string) (int, error) {
	return h.sweep(ctx, func(s *Secret) bool { return s.Labels[JoinLabel] == agent })
}

// DeleteExpiredTokens deletes tokens that are long over, and returns how many.
func (h *Manager) DeleteExpiredTokens(ctx context.Context) (int, error) {
	return h.sweep(ctx, func(s *Secret) bool {
		info, err := readToken(s)
		return err == nil && h.now().After(info.Expires.Add(tokenGrace))
	})
}

func (h *Manager) sweep(ctx context.Context, over func(*Secret) bool) (int, error) {
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
