package debian

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// machine is a System without some packages that records commands.
type machine struct {
	missing []string
	busy    int // number of commands that fail first
	ran     []string
	waited  int
}

func (m *machine) system(root bool) System {
	return System{
		Root: root, Progress: io.Discard,
		Look: func(program string) error {
			if slices.Contains(m.missing, program) {
				return errors.New("not found")
			}
			return nil
		},
		Run: func(_ context.Context, command ...string) ([]byte, error) {
			m.ran = append(m.ran, strings.Join(command, " "))
			if m.busy > 0 {
				m.busy--
				return []byte("E: 429  Too Many Requests"), errors.New("exit status 100")
			}
			return nil, nil
		},
		Wait: func(context.Context, time.Duration) error { m.waited++; return nil },
	}
}

func TestInstall_SkipsPresentPackages(t *testing.T) {
	m := &machine{}
	if err := Ensure(t.Context(), m.system(true), Lab); err != nil || len(m.ran) > 0 {
		t.Fatalf("ran %q, %v", m.ran, err)
	}
}

func TestInstall_WithoutRootNamesCommand(t *testing.T) {
	m := &machine{missing: []string{"redis-server", "gpg"}}
	err := Ensure(t.Context(), m.system(false), Lab)
	want := "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends redis-server gnupg'"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to name %q", err, want)
	}
	if len(m.ran) > 0 {
		t.Errorf("ran %q without being root", m.ran)
	}
}

func TestInstall_RootInstallsMissingPackages(t *testing.T) {
	m := &machine{missing: []string{"redis-server"}}
	if err := Ensure(t.Context(), m.system(true), Lab); err != nil {
		t.Fatal(err)
	}
	want := []string{"apt-get update", "apt-get install -y --no-install-recommends redis-server"}
	if !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}
}

func TestInstall_RetriesBusyMirror(t *testing.T) {
	m := &machine{missing: []string{"git"}, busy: 2}
	if err := Ensure(t.Context(), m.system(true), Lab); err != nil {
		t.Fatal(err)
	}
	if m.waited != 2 {
		t.Errorf("waited %d times, want 2", m.waited)
	}
}

func TestInstall_WithoutAptIsReported(t *testing.T) {
	m := &machine{missing: []string{"git", "apt-get"}}
	err := Ensure(t.Context(), m.system(true), Lab)
	if err == nil || !strings.Contains(err.Error(), "package manager") {
		t.Errorf("got %v", err)
	}
}
