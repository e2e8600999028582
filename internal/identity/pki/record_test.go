package pki

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecord_KeepsValidCertificates(t *testing.T) {
	a, b, c := strings.Repeat("A", 64), strings.Repeat("B", 64), strings.Repeat("C", 64)
	now := time.Unix(1_000_000, 0).UTC()
	r := ParseRecord(" " + a + "/" + now.Format(time.RFC3339) + "  " + b + "/" + now.Add(time.Second).Format(time.RFC3339) + " short/x " + strings.ToLower(c) + "/x " + c + "/nonsense")
	if len(r) != 3 || !r.LastExpiry().Equal(now.Add(time.Second)) {
		t.Fatalf("%v", r)
	}
	valid := r.Valid(now)
	if valid.Contains(a) || !valid.Contains(b) || !valid.Contains(c) { // of the last one the expiry is not known
		t.Errorf("%v", valid)
	}
	if again := ParseRecord(valid.String()); !slices.Equal(again, valid) {
		t.Errorf("%v instead of %v", again, valid)
	}
	if newest := r.Newest(1); len(newest) != 1 || newest[0].Fingerprint != c || len(r.Newest(9)) != 3 {
		t.Errorf("%v", newest)
	}
}

// Each step is a request for a certificate. Its name is also that of the key, unless another one is given.
func TestRecord_DetectsClonedKey(t *testing.T) {
	type step struct {
		joined    bool
		with, get string // certificates
		key       string // of the request
		old       bool   // the agent does not store the key before
		problem   string
	}
	for title, steps := range map[string][]step{
		"one agent": {{joined: true, get: "A"}, {with: "A", get: "B"}, {with: "B", get: "C"}, {with: "C", get: "D"}},
		"a clone renews first": {{joined: true, get: "A"}, {with: "A", get: "B", key: "thief"},
			{with: "A", get: "C", problem: "generation 1 was renewed again with another key after generation 2"}},
		"a clone renews later": {{joined: true, get: "A"}, {with: "A", get: "B"}, {with: "A", get: "C", key: "thief", problem: "two clients have its key"}},
		"a clone renews much later": {{joined: true, get: "A"}, {with: "A", get: "B"}, {with: "B", get: "C"},
			{with: "A", get: "D", key: "thief", problem: "generation 1"}},
		"an answer is lost":          {{joined: true, get: "A"}, {with: "A", get: "B", key: "k"}, {with: "A", get: "C", key: "k"}, {with: "C", get: "D"}},
		"both answers arrive":        {{joined: true, get: "A"}, {with: "A", get: "B", key: "k"}, {with: "A", get: "C", key: "k"}, {with: "B", get: "D"}},
		"a clone of the same key":    {{joined: true, get: "A"}, {with: "A", get: "B", key: "k"}, {with: "A", get: "C", key: "k"}, {with: "B", get: "D"}, {with: "C", get: "E", problem: "generation 2"}},
		"an answer to joining":       {{joined: true, get: "A", key: "k"}, {joined: true, get: "B", key: "k"}, {with: "A", get: "C"}, {with: "C", get: "D"}},
		"joins, and does not use it": {{joined: true, get: "A"}, {with: "A", get: "B"}, {joined: true, get: "C"}, {with: "B", get: "D"}, {with: "D", get: "E"}},
		"joins, a clone remains": {{joined: true, get: "A"}, {with: "A", get: "B"}, {joined: true, get: "C"}, {with: "B", get: "D", key: "thief"},
			{with: "C", get: "E", problem: "two clients have its key"}},
		"an earlier release":                    {{joined: true, get: "A"}, {with: "A", get: "B", old: true}, {with: "A", get: "C", old: true}, {with: "A", get: "D", old: true}},
		"a clone of an earlier release":         {{joined: true, get: "A"}, {with: "A", get: "B", old: true, key: "thief"}, {with: "A", get: "C"}, {with: "B", get: "D", old: true, key: "thief2", problem: "two clients"}},
		"a clone says it is an earlier release": {{joined: true, get: "A"}, {with: "A", get: "B"}, {with: "B", get: "C", old: true, key: "thief"}, {with: "B", get: "D", problem: "two clients"}},
		"not recorded":                          {{joined: true, get: "A"}, {with: "Z", get: "B", problem: "no record"}},
		"not recorded, nothing is":              {{with: "Z", get: "A", key: "k"}, {with: "Z", get: "B", key: "k"}, {with: "B", get: "C"}, {with: "Z", get: "D", problem: "no record"}},
	} {
		t.Run(title, func(t *testing.T) {
			var r Record
			for i, s := range steps {
				e := RecordEntry{Fingerprint: strings.Repeat(s.get, 64), Expires: time.Unix(1_000_000, 0).UTC(), Key: s.key, KeyStored: !s.old}
				if s.key == "" {
					e.Key = s.get
				}
				next, err := r.Joined(e), error(nil)
				if !s.joined {
					next, err = r.Renewed(RecordEntry{Fingerprint: strings.Repeat(s.with, 64)}, e)
				}
				if (err == nil) != (s.problem == "") || err != nil && !strings.Contains(err.Error(), s.problem) {
					t.Fatalf("step %d: %v", i, err)
				}
				if err == nil {
					if r = ParseRecord(next.String()); !slices.Equal(r, next) {
						t.Fatalf("%v was stored as %v", next, r)
					}
				}
			}
		})
	}
}

// The record of an earlier release has no generations.
func TestRecord_ContinuesThatOfAnEarlierRelease(t *testing.T) {
	a, b := strings.Repeat("A", 64), strings.Repeat("B", 64)
	r := ParseRecord(a + "/2026-01-01T00:00:00Z " + b + "/2026-01-02T00:00:00Z")
	r, err := r.Renewed(RecordEntry{Fingerprint: b}, RecordEntry{Fingerprint: strings.Repeat("C", 64), Key: "c", KeyStored: true})
	must(t, err)
	if _, err := r.Renewed(RecordEntry{Fingerprint: a}, RecordEntry{Fingerprint: strings.Repeat("D", 64), Key: "d", KeyStored: true}); err == nil {
		t.Error("a clone of an earlier certificate is not detected")
	}
	// A principal of the earlier release has issued the next one, after a rollback.
	late := strings.Repeat("E", 64)
	rolledBack := ParseRecord(r.String() + " " + late + "/2026-01-03T00:00:00Z")
	if _, err := rolledBack.Renewed(RecordEntry{Fingerprint: late}, RecordEntry{Fingerprint: strings.Repeat("F", 64), Key: "f", KeyStored: true}); err != nil {
		t.Errorf("after a rollback: %v", err)
	}
	if text := r.String(); !strings.HasPrefix(text, a+"/2026-01-01T00:00:00Z "+b) || !strings.HasSuffix(text, "//1/c/stored") {
		t.Errorf("record %s", text)
	}
}
