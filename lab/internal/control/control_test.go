package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// fake is a Handler that records requests.
type fake struct {
	acted  []string
	change proc.Change
	down   chan struct{}
}

func (f *fake) Status() []proc.Status {
	return []proc.Status{{Name: "hub/etcd", State: proc.Running, PID: 7}}
}
func (f *fake) Port() (int, error) { return 0, errors.New("the ports are used up") }
func (f *fake) Down()              { close(f.down) }

func (f *fake) Act(_ context.Context, component, action string, change proc.Change) error {
	f.acted, f.change = append(f.acted, action+" "+component), change
	return nil
}

// serve serves a fake in a directory with a path that is too long for a socket.
func serve(t *testing.T) (*fake, *Client) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := Listen(folder)
	if err != nil {
		t.Fatal(err)
	}
	lab, served := &fake{down: make(chan struct{})}, make(chan error, 1)
	go func() { served <- Serve(listener, lab) }()
	t.Cleanup(func() {
		_ = listener.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return lab, NewClient(folder)
}

func TestControl_RequestAndResponse(t *testing.T) {
	lab, client := serve(t)
	all, err := client.Status(t.Context())
	if err != nil || len(all) != 1 || all[0].PID != 7 {
		t.Errorf("status: %v, %v", all, err)
	}
	change := proc.Change{Flags: map[string]string{"--redis": "here"}}
	if err := client.Act(t.Context(), "hub/argocd-server", Restart, change); err != nil {
		t.Fatal(err)
	}
	if lab.acted[0] != "restart hub/argocd-server" || lab.change.Flags["--redis"] != "here" {
		t.Errorf("acted %v with %v", lab.acted, lab.change)
	}
	if _, err := client.Port(t.Context()); err == nil || err.Error() != "the ports are used up" {
		t.Errorf("port: %v", err)
	}
	if err := client.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lab.down
}

func TestControl_MissingLabIsNamed(t *testing.T) {
	folder := t.TempDir()
	_, err := NewClient(folder).Status(t.Context())
	if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), folder) {
		t.Errorf("got %v", err)
	}
}

func TestControl_StaleSocketIsReplaced(t *testing.T) {
	folder := t.TempDir()
	for range 2 {
		listener, err := Listen(folder)
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close() // the file stays, as after a kill
	}
}
