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
	var printed strings.Builder
	raise(file, &printed)
	if now, _ := os.ReadFile(file); string(now) != "4096" {
		t.Errorf("the limit is %s", now)
	}
	if !strings.Contains(printed.String(), "from 128 to 4096") {
		t.Errorf("printed: %s", &printed)
	}
	printed.Reset()
	raise(file, &printed)
	if printed.Len() > 0 {
		t.Errorf("printed again: %s", &printed)
	}
}

func TestLimits_MissingLimitIsIgnored(t *testing.T) {
	var printed strings.Builder
	raise(filepath.Join(t.TempDir(), "missing"), &printed)
	if printed.Len() > 0 {
		t.Errorf("printed: %s", &printed)
	}
}
