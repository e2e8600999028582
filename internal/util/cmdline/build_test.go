package cmdline

import (
	"runtime/debug"
	"testing"
)

func TestBuild_LinkerOverridesModuleVersion(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}}}
	var b Build
	b.fill(info)
	if b.Version != "v1.2.3" || b.Commit != "abc with changes" || b.Date != "2026-01-02T03:04:05Z" {
		t.Errorf("recorded by Go: %+v", b)
	}
	b = Build{Version: "v2", Commit: "def", Date: "yesterday"}
	b.fill(info)
	if b.Version != "v2" || b.Commit != "def" || b.Date != "yesterday" {
		t.Errorf("set by the linker: %+v", b)
	}
}

func TestBuild_TextAlignsValues(t *testing.T) {
	want := "argocd-agent v1\ncommit       abc\ndate         today\nbuilt with   go1 for linux/amd64\n"
	if got := (Build{"v1", "abc", "today", "go1", "linux/amd64"}).Text("argocd-agent"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
