package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCleanMappings_OnlyUnchangedPagesOfTheBinary(t *testing.T) {
	const smaps = `00400000-01080000 r-xp 00000000 fe:00 1 /argocd-agent
Rss:               12832 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  0 kB
01080000-01d00000 r--p 00c80000 fe:00 1 /argocd-agent
Private_Dirty:         0 kB
Anonymous:             0 kB
01d00000-01e00000 r--p 01900000 fe:00 1 /argocd-agent
Private_Dirty:         8 kB
Anonymous:             8 kB
01e00000-01f00000 r--p 01a00000 fe:00 1 /argocd-agent
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  4 kB
01f00000-02000000 rw-p 01a00000 fe:00 1 /argocd-agent
Private_Dirty:         0 kB
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Private_Dirty:         0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 2 /argocd-agent (deleted)
Private_Dirty:         0 kB
7f0000002000-7f0000003000 r-xp 00000000 fe:00 3 /other
Private_Dirty:         0 kB
7f0000004000-7f0000005000 r--p 00000000 fe:00 1 /argocd-agent
Private_Dirty:         0 kB
`
	want := []mapping{{0x400000, 0x1080000}, {0x1080000, 0x1d00000}, {0x7f0000004000, 0x7f0000005000}}
	if got := cleanMappings(strings.NewReader(smaps), "/argocd-agent"); !slices.Equal(got, want) {
		t.Errorf("mappings are %x, want %x", got, want)
	}
	if got := cleanMappings(strings.NewReader(""), "/argocd-agent"); len(got) > 0 {
		t.Errorf("mappings of nothing are %x", got)
	}
}

// The test runs on: its code is read from its file again.
func TestDropBinaryPages_ProgramRunsOn(t *testing.T) {
	for range 3 {
		dropBinaryPages()
	}
	if strings.Repeat("a", 3) != "aaa" {
		t.Error("the program no longer computes")
	}
}
