package cmdline

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build is the build information of a binary.
type Build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Date      string `json:"date"` // of the commit
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// BuildOf returns the values of the linker, otherwise those that the Go tool has recorded.
func BuildOf(version, commit, date string) Build {
	b := Build{Version: version, Commit: commit, Date: date, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	b.Version, b.Commit, b.Date = cmp.Or(b.Version, "dev"), cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "unknown")
	return b
}

// Text returns lines for users.
func (b Build) Text(program string) string {
	width := len(program)
	return fmt.Sprintf("%s %s\n%-*s %s\n%-*s %s\n%-*s %s for %s\n",
		program, b.Version, width, "commit", b.Commit, width, "date", b.Date, width, "built with", b.GoVersion, b.Platform)
}

func (b *Build) fill(info *debug.BuildInfo) {
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Commit != "" {
		return
	}
	modified := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			b.Commit = setting.Value
		case setting.Key == "vcs.time":
			b.Date = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = " with changes"
		}
	}
	if b.Commit != "" {
		b.Commit += modified
	}
}
