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
