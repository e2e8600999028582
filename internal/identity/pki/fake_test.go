package pki

import (
	"testing"
	"time"
)

// bench is a hub with a clock that tests set.
type bench struct {
	*Manager
	*FakeSecrets
	t     *testing.T
	clock time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{FakeSecrets: &FakeSecrets{}, t: t, clock: time.Now()}
	b.Manager = &Manager{Secrets: b.FakeSecrets, Now: func() time.Time { return b.clock }}
	return b
}

// authorityNow is the CA, made if there is none.
func (b *bench) authorityNow() *Authority {
	b.t.Helper()
	a, _, err := b.Init(b.t.Context())
	must(b.t, err)
	return a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
