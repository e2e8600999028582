package lab

import (
	"math"
	"strings"
	"testing"
)

func TestDir_FullDiskIsReported(t *testing.T) {
	err := checkSpace(t.TempDir(), math.MaxUint64)
	if err == nil || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
	if err := checkSpace(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}

func TestDir_ByNameOrPath(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv(DirVariable, "")
	for name, want := range map[string]string{
		"":         "/home/me/.cache/argocd-agent-lab/labs/default",
		"mine":     "/home/me/.cache/argocd-agent-lab/labs/mine",
		"/tmp/one": "/tmp/one",
	} {
		if got, err := DefaultDir(name); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
	}
	t.Setenv(DirVariable, "/tmp/other")
	if got, err := DefaultDir(""); err != nil || got != "/tmp/other" {
		t.Errorf("got %q, %v", got, err)
	}
}
