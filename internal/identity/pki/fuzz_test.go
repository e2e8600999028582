package pki

import (
	"testing"
	"time"
)

// FuzzParseToken makes sure that what is read as a token is written as the same.
func FuzzParseToken(f *testing.F) {
	id, secret := newTokenSecret()
	f.Add(Token{Address: "hub.example:443", Agent: "w1", ID: id, Secret: secret}.String())
	f.Add("join://[::1]:1/a/b/c.d")
	f.Fuzz(func(t *testing.T, line string) {
		token, err := ParseToken(line)
		if err != nil {
			return
		}
		again, err := ParseToken(token.String())
		if err != nil || again != token {
			t.Errorf("%q becomes %+v, %v", line, again, err)
		}
	})
}

// FuzzReadRequest makes sure that nothing becomes a certificate of another name.
func FuzzReadRequest(f *testing.F) {
	a, err := NewAuthority(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	for _, agent := range []string{"w1", "w2"} {
		request, _, err := NewRequest(agent, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(request)
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		chain, err := a.Sign(request, "w1", time.Hour, time.Now())
		if err != nil {
			return
		}
		certs, err := Certificates(chain)
		if err != nil || certs[0].Subject.String() != "CN=w1" || certs[0].IsCA || len(certs[0].DNSNames)+len(certs[0].URIs)+len(certs[0].IPAddresses) > 0 {
			t.Errorf("%v, %v", certs, err)
		}
	})
}
