// Package redistest starts a redis-server for one test without a lab: in its own directory, with a socket only, until
// the end of the test.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Redis is a redis-server.
type Redis struct {
	Address  string // a socket
	Password string // If empty, no password

	t       testing.TB
	args    []string
	process *exec.Cmd
}

// Start starts a redis-server with additional arguments and waits until it answers. Without a redis-server, a short
// test is skipped and others fail.
func Start(t testing.TB, password string, args ...string) *Redis {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if testing.Short() {
			t.Skip("needs redis-server")
		}
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	r := &Redis{Address: filepath.Join(dir, "s"), Password: password, t: t}
	r.args = append([]string{program, "--port", "0", "--unixsocket", r.Address, "--save", "", "--appendonly", "no", "--dir", dir}, args...)
	if password != "" {
		r.args = append(r.args, "--requirepass", password)
	}
	t.Cleanup(func() {
		r.Stop()
		_ = os.RemoveAll(dir)
	})
	r.Run()
	return r
}

// Run starts it again after Stop, without data.
func (r *Redis) Run() {
	r.t.Helper()
	r.process = exec.CommandContext(context.Background(), r.args[0], r.args[1:]...)
	if err := r.process.Start(); err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err := r.ping()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("redis-server does not answer: %v", err)
		}
	}
}

// Stop kills it. It has no effect if it does not run.
func (r *Redis) Stop() {
	if r.process == nil || r.process.Process == nil {
		return
	}
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	_ = os.Remove(r.Address)
	r.process = nil
}

// Process returns the running process, to measure or to stop it.
func (r *Redis) Process() *os.Process { return r.process.Process }

// Ask sends one request and returns the first line of the reply.
func (r *Redis) Ask(args ...string) (string, error) {
	conn, err := net.Dial("unix", r.Address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(conn)
	var line string
	for _, request := range [][]string{{"AUTH", r.Password}, args} {
		if request[0] == "AUTH" && r.Password == "" {
			continue
		}
		text := fmt.Appendf(nil, "*%d\r\n", len(request))
		for _, arg := range request {
			text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(arg), arg)
		}
		if _, err := conn.Write(text); err != nil {
			return "", err
		}
		if line, err = in.ReadString('\n'); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(line), nil
}

func (r *Redis) ping() error {
	reply, err := r.Ask("PING")
	if err == nil && reply != "+PONG" {
		err = fmt.Errorf("it says %s", reply)
	}
	return err
}
