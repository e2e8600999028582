package agent

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// hub is what an agent can tell its troubles to, if it listens.
type hub struct {
	refuses bool
	asked   int
	conns   chan net.Conn
}

func (h *hub) open(context.Context) (net.Conn, error) {
	h.asked++
	if h.refuses {
		return nil, errors.New("agents cannot connect to \"write-health\" of the hub")
	}
	here, there := net.Pipe()
	h.conns <- there
	return here, nil
}

func TestWriteHealthReporter_ReportsOnceAndEnds(t *testing.T) {
	h := &hub{conns: make(chan net.Conn, 4)}
	c := &writeHealthReporter{open: h.open}
	at := time.Now()
	heard := make(chan string, 16)
	listen := func(conn net.Conn) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			heard <- lines.Text()
		}
		heard <- "end"
	}
	say := func(what string, after time.Duration) {
		t.Helper()
		at = at.Add(after)
		if err := c.report(t.Context(), what, at); err != nil {
			t.Fatal(err)
		}
	}
	say("", 0)
	if h.asked > 0 {
		t.Fatal("it opens a tunnel without an outage")
	}
	go func() { listen(<-h.conns) }()
	say("full", 0)
	say("full", reportInterval) // no news
	say("fuller", reportInterval)
	say("fuller", reportRetryInterval) // so that the tunnel does not seem idle
	say("", reportInterval)
	for _, want := range []string{"full", "fuller", "fuller", "end"} {
		if got := <-heard; got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
	if h.asked != 1 {
		t.Errorf("%d tunnels for one outage", h.asked)
	}
}

func TestWriteHealthReporter_RetriesSlowly(t *testing.T) {
	h := &hub{refuses: true, conns: make(chan net.Conn, 4)}
	c := &writeHealthReporter{open: h.open}
	at := time.Now()
	for range 24 { // two minutes
		_ = c.report(t.Context(), "full", at)
		at = at.Add(reportInterval)
	}
	if h.asked != 2 {
		t.Errorf("asked %d times in two minutes", h.asked)
	}
	h.refuses = false // another hub, which takes the connection and breaks it
	go func() { _ = (<-h.conns).Close() }()
	at = at.Add(reportRetryInterval)
	if err := c.report(t.Context(), "full", at); err == nil {
		t.Fatal("it does not notice that the tunnel is closed")
	}
	heard := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(<-h.conns).ReadString('\n')
		heard <- line
	}()
	if err := c.report(t.Context(), "full", at.Add(reportInterval)); err != nil { // the session is another one now
		t.Fatal(err)
	}
	if got := <-heard; got != "full\n" {
		t.Errorf("heard %q", got)
	}
}
