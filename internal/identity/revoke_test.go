package identity

import (
	"slices"
	"strings"
	"testing"
)

func TestRevocations_SetReturnsNewFingerprints(t *testing.T) {
	a, b := strings.Repeat("AB", 32), strings.Repeat("0C", 32)
	colons := strings.TrimSuffix(strings.Repeat("0c:", 32), ":")
	r := &Revocations{}
	added, err := r.Set([]string{a})
	if err != nil || !slices.Equal(added, []string{a}) {
		t.Fatalf("added %v, %v", added, err)
	}
	added, err = r.Set([]string{strings.ToLower(a), colons, b})
	if err != nil || !slices.Equal(added, []string{b}) {
		t.Fatalf("added %v, %v", added, err)
	}
	if !r.Revoked(a) || !r.Revoked(b) || r.Revoked(strings.Repeat("00", 32)) {
		t.Error("the set is wrong")
	}
	if _, err = r.Set([]string{b, "typo"}); err == nil || !strings.Contains(err.Error(), `invalid SHA-256 fingerprint "typo"`) {
		t.Errorf("error %v", err)
	}
	if r.Revoked(a) || !r.Revoked(b) {
		t.Error("a typo must not keep the rest from being replaced")
	}
	if (*Revocations)(nil).Revoked(a) {
		t.Error("nil is not empty")
	}
}
