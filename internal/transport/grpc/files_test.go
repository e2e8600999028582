package grpc

import (
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestConnLimit_LeavesFilesForOthers(t *testing.T) {
	for files, want := range map[int]int{64: 1, 600: 525, 1024: 896, 1 << 20: maxConns} {
		if got := connLimit(files); got != want {
			t.Errorf("of %d files %d are for connections instead of %d", files, got, want)
		}
	}
	if files, known := openFiles(); known && files < 64 {
		t.Errorf("this process may have %d files open", files)
	}
}

// scarce is a listener for which there is no file at first.
type scarce struct {
	net.Listener
	want atomic.Int64
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.want.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return s.Listener.Accept()
}

func TestListener_SurvivesWithoutOpenFiles(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	inner, err := Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	l := &scarce{Listener: inner}
	h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, l)
	first := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent := first.next("connected").conn
	h.next("connected")

	l.want.Store(3)
	second := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b")})
	third := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-c")})
	second.next("connected")
	third.next("connected")
	h.next("connected")
	h.next("connected")
	if got := h.Counters().Refused()[refusedFiles]; got != 3 {
		t.Errorf("counted %d times instead of 3", got)
	}
	if log := h.log.String(); strings.Count(log, "Failed to accept connections") != 1 || !strings.Contains(log, "raise the limit of open files") {
		t.Errorf("the log says %s", log)
	}
	must(t, agent.Send(roots(1)))
	if got := numberOf(t, h.next("received").message); got != 1 {
		t.Errorf("the connected agent sends %d", got)
	}

	l.want.Store(1 << 40) // forever: a shutdown does not wait for it
	eventually(t, "it notices", func() bool {
		if conn, err := net.DialTimeout("tcp", h.address, time.Second); err == nil {
			_ = conn.Close()
		}
		return h.Counters().Refused()[refusedFiles] > 3
	})
	h.stop()
}

func TestListener_LogsRefusedConnections(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Limits: Limits{Conns: 1}})
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")}).next("connected")
	late := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b")})
	_, _ = late.failure(), late.failure()
	if log := h.log.String(); strings.Count(log, "Connections refused") != 1 || !strings.Contains(log, "raise the limit of open files") {
		t.Errorf("the log says %s", log)
	}
	if h.Counters().Refused()[refusedFull] < 2 {
		t.Errorf("counted %v", h.Counters().Refused())
	}
}
