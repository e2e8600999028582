package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// hubOnly is the smallest lab.
func hubOnly() lab.Options { return lab.Options{Bare: true, Spokes: []lab.Spoke{}} }

func TestUp_TwoLabsAtOnce(t *testing.T) {
	first, second := lab.New(t, hubOnly()), lab.New(t, hubOnly())
	if first.Hub().Server == second.Hub().Server {
		t.Fatalf("both are at %s", first.Hub().Server)
	}
	mustWrite(t, first.Hub(), "mine")
	if got, err := exists(t.Context(), second.Hub(), "mine"); err != nil || got {
		t.Errorf("the other lab shows it: %v, %v", got, err)
	}
	if err := first.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, second.Hub(), "still-works")
}

// listeners returns the listening addresses of the processes of a lab.
func listeners(t *testing.T, l *lab.Lab) []string {
	t.Helper()
	addresses := []string{l.ArgoCD.Address}
	for _, c := range l.Clusters {
		addresses = append(addresses, c.Redis.Address, c.RepoServer, c.KubeletServer)
		for _, raw := range []string{c.Server, c.EtcdURL, c.EtcdPeer, l.Git.URL} {
			parsed, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, parsed.Host)
		}
	}
	return addresses
}

func listening(address string) bool {
	connection, err := net.Dial("tcp", address)
	if err == nil {
		_ = connection.Close()
	}
	return err == nil
}

func TestDown_LeavesNoProcessAndNoPort(t *testing.T) {
	l := lab.New(t, lab.Options{Spokes: []lab.Spoke{}})
	addresses := listeners(t, l)
	for _, address := range addresses {
		if !listening(address) {
			t.Errorf("nothing listens at %q", address)
		}
	}
	if len(proc.Members(l.Dir())) == 0 {
		t.Error("the processes of the lab cannot be found")
	}
	if err := l.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := proc.Members(l.Dir()); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	for _, address := range addresses {
		if listening(address) {
			t.Errorf("something listens at %s", address)
		}
	}
	if _, err := os.Stat(l.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := l.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "no lab is running") {
		t.Errorf("a second down says %v", err)
	}
}

func TestUp_AfterKilledSupervisor(t *testing.T) {
	l := lab.New(t, hubOnly())
	if err := syscall.Kill(l.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "no process left", func(context.Context) error {
		if left := proc.Members(l.Dir()); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
	options := hubOnly()
	options.Dir = l.Dir()
	again := lab.New(t, options)
	mustWrite(t, again.Hub(), "works")
}

func TestLab_EndsWithItsOwner(t *testing.T) {
	skipShort(t)
	owner := exec.Command("sleep", "1000")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	options := hubOnly()
	options.Dir = filepath.Join(t.TempDir(), "lab")
	options.WhilePID, options.Ephemeral = owner.Process.Pid, true
	l, err := lab.Up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	lab.Await(t, "the lab to end", func(context.Context) error {
		if left := proc.Members(l.Dir()); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		if _, err := os.Stat(l.Dir()); err == nil {
			return errors.New("its directory is still there")
		}
		return nil
	})
}

func TestUp_InterruptedLeavesNothing(t *testing.T) {
	skipShort(t)
	options := hubOnly()
	options.Dir = filepath.Join(t.TempDir(), "lab")
	ctx, interrupt := context.WithCancelCause(t.Context())
	stopped := errors.New("interrupted")
	done := make(chan error, 1)
	go func() {
		_, err := lab.Up(ctx, options)
		done <- err
	}()
	lab.Await(t, "the first components", func(context.Context) error {
		if log := filepath.Join(options.Dir, "logs", "hub-kube-apiserver.log"); !isThere(log) {
			return errors.New("none yet")
		}
		return nil
	})
	interrupt(stopped)
	if err := <-done; !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	if left := proc.Members(options.Dir); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if _, err := lab.Open(t.Context(), options.Dir); err == nil {
		t.Error("half a lab can be opened")
	}
}

func isThere(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestUp_SecondOnSameDirectoryIsRejected(t *testing.T) {
	l := lab.New(t, hubOnly())
	options := hubOnly()
	options.Dir = l.Dir()
	_, err := lab.Up(t.Context(), options)
	if !errors.Is(err, lab.ErrRunning) || !strings.Contains(err.Error(), "lab down") {
		t.Errorf("got %v", err)
	}
	mustWrite(t, l.Hub(), "unharmed")
}

func TestUp_RejectsInvalidOptions(t *testing.T) {
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.txt"), []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options lab.Options
		want    string
	}{
		"an occupied port":    {lab.Options{ArgoCDPort: occupied.Addr().(*net.TCPAddr).Port}, "is occupied"},
		"a name with a space": {lab.Options{Spokes: []lab.Spoke{{Name: "my spoke", Role: lab.Managed}}}, "is no name"},
		"an unknown role":     {lab.Options{Spokes: []lab.Spoke{{Name: "spoke", Role: "lonely"}}}, "use managed or autonomous"},
		"a name twice": {lab.Options{Spokes: []lab.Spoke{{Name: "a", Role: lab.Managed}, {Name: "a", Role: lab.Managed}}},
			"two clusters are called a"},
		"a second hub":                  {lab.Options{Spokes: []lab.Spoke{{Name: "hub", Role: lab.Managed}}}, "two clusters are called hub"},
		"a path too long for sockets":   {lab.Options{Dir: "/tmp/" + strings.Repeat("long", 20)}, "too long"},
		"a directory of something else": {lab.Options{Dir: full, Bare: true}, "choose an empty or a new directory"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.options.Dir == full {
				skipShort(t) // it is checked after the tools are built
			}
			if test.options.Dir == "" {
				test.options.Dir, test.options.Bare = filepath.Join(t.TempDir(), "lab"), true
			}
			test.options.Progress = io.Discard
			_, err := lab.Up(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if left := proc.Members(test.options.Dir); len(left) > 0 {
				t.Errorf("processes left: %v", left)
			}
		})
	}
	if !isThere(filepath.Join(full, "thesis.txt")) {
		t.Error("the file of another user is gone")
	}
}

func TestStatus_NoLabRunning(t *testing.T) {
	_, err := lab.Open(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "lab up") {
		t.Errorf("got %v", err)
	}
}

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs real clusters, which -short leaves out")
	}
}
