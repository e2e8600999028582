package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLimits_LowLimitIsRaised(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limit")
	if err := os.WriteFile(file, []byte("128\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	raise(file, &told)
	if now, _ := os.ReadFile(file); string(now) != "4096" {
		t.Errorf("the limit is %s", now)
	}
	if !strings.Contains(told.String(), "from 128 to 4096") {
		t.Errorf("told: %s", &told)
	}
	told.Reset()
	raise(file, &told)
	if told.Len() > 0 {
		t.Errorf("told again: %s", &told)
	}
}

func TestLimits_MissingLimitIsIgnored(t *testing.T) {
	var told strings.Builder
	raise(filepath.Join(t.TempDir(), "missing"), &told)
	if told.Len() > 0 {
		t.Errorf("told: %s", &told)
	}
}
