package pki

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// issued returns an entry of a certificate that was issued in a certain minute. Its name is also that of its key.
func issued(name string, minute int) RecordEntry {
	return RecordEntry{Fingerprint: strings.Repeat(name, 64), Key: name, KeyStored: true,
		Issued: time.Unix(0, 0).UTC().Add(time.Duration(minute) * time.Minute), Expires: time.Unix(1_000_000, 0).UTC()}
}

// recordedOn returns an entry that a promoted hub recorded.
func recordedOn(hub uint64, e RecordEntry) RecordEntry {
	e.Hub = hub
	return e
}

// generations numbers entries.
func generations(all ...RecordEntry) (r Record) {
	for i, e := range all {
		e.Generation = uint64(i) + 1
		r = append(r, e)
	}
	return r
}

// The hub before this one issued certificate C after A, and this hub was promoted as generation 2 without having received that.
func TestRecord_CertificateThatPromotedHubHasNotReceived(t *testing.T) {
	unknown := func(e RecordEntry) RecordEntry { e.Issued = time.Time{}; return e }
	joined := func(e RecordEntry) RecordEntry { e.KeyStored, e.Joined = false, true; return e }
	sameKey := func(e RecordEntry) RecordEntry { e.Key = "C"; return e }
	a, c := issued("A", 1), issued("C", 5)
	for name, test := range map[string]struct {
		record Record
		with   RecordEntry
		hub    uint64
		err    error // nil: it is the next generation
	}{
		"next generation":                                       {generations(a), c, 2, nil},
		"after several generations":                             {generations(issued("F", 0), a), c, 2, nil},
		"recorded by a hub that was promoted before":            {generations(recordedOn(2, a)), c, 3, nil},
		"hub was not promoted":                                  {generations(a), c, 0, ErrNotRecorded},
		"of another CA":                                         {generations(a), unknown(c), 2, ErrNotRecorded},
		"hub was not promoted, and issued one later":            {generations(issued("B", 7)), c, 0, ErrNotRecorded},
		"of another CA, and all of the record is from here":     {generations(recordedOn(2, issued("B", 7))), unknown(c), 2, ErrNotRecorded},
		"older than the record":                                 {generations(issued("A", 6)), c, 2, ErrNotRecorded},
		"as old as the record":                                  {generations(issued("A", 5)), c, 2, ErrNotRecorded},
		"older than one of the record":                          {generations(issued("B", 6), a), c, 2, ErrNotRecorded},
		"record of an earlier release":                          {generations(unknown(a)), c, 2, ErrNotRecorded},
		"a client has joined here":                              {generations(a, recordedOn(2, joined(issued("J", 7)))), c, 2, ErrNotRecorded},
		"a client has joined here, by a clock behind":           {generations(a, recordedOn(2, joined(issued("J", 3)))), c, 2, ErrNotRecorded},
		"a user has issued one with the command":                {generations(a, joined(issued("U", 7))), c, 2, ErrNotRecorded},
		"the same client has renewed here":                      {generations(a, recordedOn(2, sameKey(issued("B", 7)))), c, 2, ErrNotRecorded},
		"issued later than a renewal here, so this hub lost it": {generations(a, recordedOn(2, issued("B", 4))), c, 2, ErrNotRecorded},
		"another client has renewed here":                       {generations(a, recordedOn(2, issued("B", 7))), c, 2, &ReusedError{}},
		"another client has renewed here, record unknown":       {generations(unknown(a), recordedOn(2, issued("B", 7))), c, 2, ErrNotRecorded},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.record)
			next, err := test.record.Renewed(test.with, recordedOn(test.hub, issued("D", 9)))
			if !slices.Equal(test.record, before) {
				t.Errorf("the record was changed to %v", test.record)
			}
			if test.err != nil {
				if reused := new(ReusedError); errors.Is(test.err, ErrNotRecorded) && !errors.Is(err, ErrNotRecorded) ||
					!errors.Is(test.err, ErrNotRecorded) && (!errors.As(err, &reused) || !strings.Contains(reused.Error(), "the hub before this one issued")) {
					t.Errorf("%v, want %v", err, test.err)
				}
				return
			}
			if err != nil || len(next) != len(before)+2 || !next.Contains(test.with.Fingerprint) || next.lastGeneration() != before.lastGeneration()+2 {
				t.Fatalf("%v, %v", next, err)
			}
			if again := ParseRecord(next.String()); !slices.Equal(again, next) {
				t.Errorf("%v was stored as %v", next, again)
			}
		})
	}
}

// After that, the hub detects another client as a hub does that was not promoted.
func TestRecord_AfterCertificateThatPromotedHubHasNotReceived(t *testing.T) {
	a, c := issued("A", 1), issued("C", 5)
	r, err := generations(a).Renewed(c, recordedOn(2, issued("D", 9)))
	must(t, err)
	renew := func(r Record, with, e RecordEntry) (Record, error) { return r.Renewed(with, recordedOn(2, e)) }
	if again, err := renew(r, c, RecordEntry{Fingerprint: strings.Repeat("E", 64), Key: "D", KeyStored: true}); err != nil || again.lastGeneration() != 3 {
		t.Errorf("its answer was lost: %v, %v", again, err)
	}
	if next, err := renew(r, issued("D", 9), issued("E", 10)); err != nil || next.lastGeneration() != 4 {
		t.Errorf("next renewal: %v, %v", next, err)
	}
	for name, with := range map[string]RecordEntry{"key that the hub knew": a, "the same certificate": c, "another one that the hub has not received": issued("B", 6), "an earlier one that it has not received": issued("B", 4)} {
		if _, err := renew(r, with, issued("F", 11)); !errors.As(err, new(*ReusedError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client can conceal that it stores its keys, also a thief. The agent stores them.
func TestRecord_ThiefConcealsFromPromotedHubThatItStoresKeys(t *testing.T) {
	old := func(e RecordEntry) RecordEntry { e.KeyStored = false; return recordedOn(2, e) }
	joined := Record(nil).Joined(issued("A", 1))
	a, c, b := issued("A", 1), issued("C", 5), issued("B", 6)
	c.KeyStored = false // a certificate does not show it
	alarm := func(r Record, with, e RecordEntry) {
		t.Helper()
		if _, err := r.Renewed(with, recordedOn(2, e)); !errors.As(err, new(*ReusedError)) {
			t.Errorf("%v renewed: %v, want an alarm", with.Key, err)
		}
	}
	// The lost hub renewed A to C, and C to B. The thief has C.
	if r, err := joined.Renewed(c, old(issued("D", 9))); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("it was renewed: %v, %v", r, err)
	}
	r, err := joined.Renewed(c, recordedOn(2, issued("D", 9)))
	must(t, err)
	alarm(ParseRecord(r.String()), b, issued("E", 10))
	alarm(r, b, old(issued("E", 10)))
	r, err = r.Renewed(issued("D", 9), old(issued("F", 10)))
	must(t, err)
	alarm(ParseRecord(r.String()), b, issued("E", 11))
	// When D has expired first, the certificate of the hub before this one is the newest.
	alarm(ParseRecord(r[:2].String()), a, issued("E", 11))

	// The thief has A, and renews it first. The agent has C.
	r, err = joined.Renewed(a, old(issued("D", 9)))
	must(t, err)
	alarm(ParseRecord(r.String()), c, issued("E", 10))
}

// An agent of an earlier release does not repeat a request with the same key. It is refused, and that is no alarm.
func TestRecord_AgentOfEarlierReleaseOnPromotedHub(t *testing.T) {
	old := func(e RecordEntry) RecordEntry { e.KeyStored = false; return recordedOn(2, e) }
	a, c := issued("A", 1), issued("C", 5)
	r := Record(nil).Joined(a)
	if _, err := r.Renewed(c, old(issued("D", 9))); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("a certificate that this hub has not received: %v", err)
	}
	// Its answers are lost. Another pod has the certificate that the hub has not received.
	for _, e := range []RecordEntry{issued("D", 9), issued("E", 10)} {
		next, err := r.Renewed(a, old(e))
		must(t, err)
		r = ParseRecord(next.String())
	}
	if _, err := r.Renewed(c, old(issued("F", 11))); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("another pod: %v", err)
	}
	// A client that joined here is not another one that renewed.
	r = Record(nil).Joined(a).Joined(recordedOn(2, issued("D", 9)))
	if _, err := ParseRecord(r.String()).Renewed(c, recordedOn(2, issued("E", 10))); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("after joining here: %v", err)
	}
}

func TestAuthority_EntryOfOwnCertificates(t *testing.T) {
	now := time.Now()
	client := func(a *Authority) RecordEntry {
		t.Helper()
		pair, err := a.Client("w1", ClientLifetime, now)
		must(t, err)
		e, err := EntryOf(pair.Cert)
		must(t, err)
		return e
	}
	entry := func(a, by *Authority) RecordEntry {
		t.Helper()
		pair, err := by.Client("w1", ClientLifetime, now)
		must(t, err)
		certs, err := Certificates(pair.Cert)
		must(t, err)
		e := a.EntryOf(certs[0])
		if want, _ := EntryOf(pair.Cert); e.Fingerprint != want.Fingerprint || e.Key != want.Key {
			t.Errorf("%v, want %v", e, want)
		}
		return e
	}
	own, err := NewAuthority(now)
	must(t, err)
	other, err := NewAuthority(now)
	must(t, err)
	if at := client(own).Issued; !at.Equal(now.UTC().Truncate(time.Second)) {
		t.Errorf("issued at %s instead of %s", at, now)
	}
	if entry(own, own).Issued.IsZero() || !entry(own, other).Issued.IsZero() {
		t.Error("not exactly certificates of the own CA are recognized")
	}
	// A user has added another CA to the trusted ones. The CA is replaced.
	own.Bundle = append(own.Bundle, other.Cert)
	if !entry(own, other).Issued.IsZero() {
		t.Error("a trusted CA counts as the own one")
	}
	next, err := own.replace(now)
	must(t, err)
	if entry(next, next).Issued.IsZero() || entry(next, own).Issued.IsZero() || !entry(next, other).Issued.IsZero() {
		t.Error("during a rotation, not exactly certificates of both CAs are recognized")
	}
	next.cross = nil
	if !entry(next, own).Issued.IsZero() {
		t.Error("after a rotation, certificates of the former CA are recognized")
	}
}
