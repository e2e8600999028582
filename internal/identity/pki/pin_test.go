package pki

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestPin_VerifiesTheHub(t *testing.T) {
	b := newBench(t)
	a := b.authorityNow()
	stranger, err := NewAuthority(b.clock)
	must(t, err)
	genuine, err := a.Server([]string{"hub.example"}, ServerLifetime, b.clock)
	must(t, err)
	proxy, err := stranger.Server([]string{"hub.example"}, ServerLifetime, b.clock)
	must(t, err)
	elsewhere, err := a.Server([]string{"other.example"}, ServerLifetime, b.clock)
	must(t, err)
	// An attacker presents our CA next to a certificate that it did not sign.
	forged := Pair{Cert: append(append([]byte{}, proxy.Cert...), encodeCerts(a.Cert)...), Key: proxy.Key}
	for _, test := range []struct {
		title   string
		server  Pair
		clock   time.Duration
		problem string
	}{
		{"genuine", genuine, 0, ""},
		{"clock behind", genuine, -30 * time.Minute, ""},
		{"clock far behind", genuine, -2 * time.Hour, "not yet valid"},
		{"proxy", proxy, 0, "load balancer terminates TLS"},
		{"forged", forged, 0, "unknown authority"},
		{"another host", elsewhere, 0, "other.example"},
	} {
		err := connect(t, a.Pin().ClientTLS("hub.example", func() time.Time { return b.clock.Add(test.clock) }), test.server)
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%s: error %v", test.title, err)
		}
		if e := new(PinError); test.title == "proxy" && (!errors.As(err, &e) || !strings.Contains(err.Error(), `subject "CN=hub.example"`)) {
			t.Errorf("%s: error %v", test.title, err)
		}
	}
}

func connect(t *testing.T, client *tls.Config, server Pair) error {
	t.Helper()
	pair, err := tls.X509KeyPair(server.Cert, server.Key)
	must(t, err)
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_ = tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}).Handshake()
	}()
	return tls.Client(near, client).Handshake()
}

func TestParsePin_ReadsString(t *testing.T) {
	a, err := NewAuthority(time.Now())
	must(t, err)
	pin := a.Pin()
	if got, err := ParsePin(pin.String()); err != nil || got != pin {
		t.Errorf("%s: %v", pin, err)
	}
	for _, text := range []string{"", "x", pin.String()[1:], pin.String() + "A"} {
		if _, err := ParsePin(text); err == nil {
			t.Errorf("%q is a pin", text)
		}
	}
}
