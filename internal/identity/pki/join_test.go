package pki

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func invite(b *bench) Token {
	b.t.Helper()
	b.authorityNow()
	token, err := b.CreateToken(b.t.Context(), "hub.example:443", JoinGrant{Agent: "w1", Mode: "managed", Labels: map[string]string{"env": "prod"}}, time.Hour)
	must(b.t, err)
	return token
}

func requestFor(t *testing.T, agent string) []byte {
	t.Helper()
	r, _, err := NewRequest(agent, nil)
	must(t, err)
	return r
}

func TestRedeem_OnceForOneKey(t *testing.T) {
	b := newBench(t)
	token, err := ParseToken(" " + invite(b).String() + "\n")
	must(t, err)
	if hosts, port := token.Servers(); !slices.Equal(hosts, []string{"hub.example"}) || port != "443" || strings.ContainsAny(token.String(), " $&?*'\"`!#;()<>|\\~{}[]") {
		t.Errorf("the line is %s", token)
	}
	s, _ := b.Get(t.Context(), joinPrefix+token.ID)
	for field, value := range s.Data {
		if strings.Contains(string(value), token.Secret) {
			t.Errorf("the hub keeps the secret in %s", field)
		}
	}
	request := requestFor(t, "w1")
	for range 2 { // the answer may get lost
		who, err := b.Redeem(t.Context(), token.ID, token.Secret, "w1", request)
		if err != nil || who.Mode != "managed" || who.Labels["env"] != "prod" {
			t.Fatalf("%+v, %v", who, err)
		}
	}
	refused(t, b, token, requestFor(t, "w1"), "was used at")
	if all, err := b.List(t.Context(), JoinLabel); err != nil || len(all) != 1 || len(all[0].Data[usedField]) == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	b.clock = b.clock.Add(2 * time.Hour)
	refused(t, b, token, request, "expired at") // the same key, too late
}

func TestToken_HasSeveralAddresses(t *testing.T) {
	b := newBench(t)
	b.authorityNow()
	create := func(address string) (Token, error) {
		return b.CreateToken(t.Context(), address, JoinGrant{Agent: "w1", Mode: "managed"}, time.Hour)
	}
	token, err := create("hub.example:8443,[2001:db8::1]:8443")
	must(t, err)
	parsed, err := ParseToken(token.String())
	must(t, err)
	if hosts, port := parsed.Servers(); !slices.Equal(hosts, []string{"hub.example", "2001:db8::1"}) || port != "8443" {
		t.Errorf("hosts %q, port %s", hosts, port)
	}
	for address, want := range map[string]string{
		"hub.example:443,":                    "not of the form host:port",
		"hub.example:443,other":               "not of the form host:port",
		"hub.example:443,other:8443":          "all addresses need the same port",
		"hub.example:443,hub.example:443":     "is there twice",
		strings.Repeat("hub:443,", 8) + "hub": "there are 9: at most 8",
	} {
		if _, err := create(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
		damaged := token
		damaged.Address = address
		if _, err := ParseToken(damaged.String()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
	}
}

func refused(t *testing.T, b *bench, token Token, request []byte, why string) {
	t.Helper()
	_, err := b.Redeem(t.Context(), token.ID, token.Secret, "w1", request)
	if refusal := new(RefusalError); !errors.As(err, &refusal) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "agent join-token w1") {
		t.Errorf("error %v instead of one with %q and what to do", err, why)
	}
}

func TestRedeem_RefusesInvalidTokens(t *testing.T) {
	b := newBench(t)
	token := invite(b)
	request := requestFor(t, "w1")
	wrong := token
	wrong.Secret = strings.Repeat("A", len(token.Secret))
	refused(t, b, wrong, request, "not known on the hub")
	unknown := token
	unknown.ID = "aaaaaaaa"
	refused(t, b, unknown, request, "not known on the hub")
	path := token
	path.ID = "../../x"
	refused(t, b, path, request, "not known on the hub")
	if _, err := b.Redeem(t.Context(), token.ID, token.Secret, "w2", requestFor(t, "w2")); err == nil || !strings.Contains(err.Error(), `for agent "w1", not for "w2"`) {
		t.Errorf("error %v", err)
	}
	if _, err := b.Redeem(t.Context(), token.ID, token.Secret, "w1", requestFor(t, "w2")); err == nil || !strings.Contains(err.Error(), `it is for "w2"`) {
		t.Errorf("error %v", err)
	}
	// None of that has used it up.
	_, err := b.Redeem(t.Context(), token.ID, token.Secret, "w1", request)
	must(t, err)
}

func TestRedeem_OnlyOneOfTwoConcurrentKeys(t *testing.T) {
	b := newBench(t)
	token := invite(b)
	b.Before = func(*Secret) {
		_, err := b.Redeem(t.Context(), token.ID, token.Secret, "w1", requestFor(t, "w1"))
		must(t, err)
	}
	refused(t, b, token, requestFor(t, "w1"), "was used at")
}

func TestDeleteExpiredTokens_AfterTheGracePeriod(t *testing.T) {
	b := newBench(t)
	invite(b)
	b.clock = b.clock.Add(2 * time.Hour)
	if n, err := b.DeleteExpiredTokens(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
	b.clock = b.clock.Add(tokenGrace)
	if n, err := b.DeleteExpiredTokens(t.Context()); n != 1 || err != nil {
		t.Error(n, err)
	}
	invite(b)
	if n, err := b.DeleteTokens(t.Context(), "w2"); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := b.DeleteTokens(t.Context(), "w1"); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestParseToken_ExplainsInvalidTokens(t *testing.T) {
	good := invite(newBench(t)).String()
	for text, problem := range map[string]string{
		"":                                   "not a join token",
		"https://hub/x":                      "not a join token",
		good[:len(good)-1]:                   "is damaged",
		good + "x":                           "is damaged",
		strings.Replace(good, ":443", "", 1): "not of the form host:port",
		strings.Replace(good, ":443", ":99999", 1): "1 to 65535",
		strings.Replace(good, "/w1/", "/W1/", 1):   "invalid agent name",
		strings.Replace(good, "/w1/", "/w--1/", 1): "two dashes in a row",
		strings.Replace(good, "/w1/", "/w1/x", 1):  "invalid CA pin",
		strings.Replace(good, "/w1/", "/", 1):      "3 parts instead of 4",
	} {
		if _, err := ParseToken(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: error %v instead of one with %q", text, err, problem)
		}
	}
}

func TestEnsureServerCert_IssuesAndRenews(t *testing.T) {
	b := newBench(t)
	a := b.authorityNow()
	keep := func(names ...string) bool {
		t.Helper()
		issued, next, err := b.EnsureServerCert(t.Context(), PrincipalSecret, names)
		must(t, err)
		if !next.After(b.clock) {
			t.Errorf("look again at %s", next)
		}
		return issued
	}
	if !keep("hub") || keep("hub") || !keep("hub", "10.0.0.1") || keep("10.0.0.1") {
		t.Error("issued too often or not at all")
	}
	b.clock = b.clock.Add(ServerLifetime * 3 / 4)
	if !keep("hub") || keep("hub") {
		t.Error("not renewed when two thirds of its life were over")
	}
	_, err := b.Rotate(t.Context())
	must(t, err)
	if !keep("hub") || keep("hub") {
		t.Error("not issued by the new CA")
	}
	s, _ := b.Get(t.Context(), PrincipalSecret)
	if certs, _ := Certificates(s.Data[CertKey]); a.HasIssued(certs[0]) {
		t.Error("the old CA has issued it")
	}
	for manager, other := range map[string]*Secret{
		"":             {Name: ProxySecret, Data: s.Data},
		"cert-manager": {Name: "other", Labels: s.Labels, Annotations: map[string]string{"cert-manager.io/issuer-name": "x"}, Data: s.Data},
	} {
		err := b.Put(t.Context(), other)
		must(t, err)
		var foreign *NotManagedError
		if _, _, err := b.EnsureServerCert(t.Context(), other.Name, []string{"hub"}); !errors.As(err, &foreign) || foreign.ManagedBy != manager {
			t.Errorf("error %v", err)
		}
	}
}
