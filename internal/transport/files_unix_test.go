//go:build unix

package transport

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"
)

// fewFiles is the limit of open files of a hub in a process of its own.
const fewFiles = 150

// TestHubWithFewFiles is that process, if TestMoreAgentsThanFiles has started it.
func TestHubWithFewFiles(t *testing.T) {
	if os.Getenv("LINK_TEST_FEW_FILES") == "" {
		return
	}
	h := startHub(t, ServerConfig{Authenticate: func(ctx context.Context) (Peer, error) {
		p, _ := peer.FromContext(ctx)
		_, port, err := net.SplitHostPort(p.Addr.String())
		return Peer{Agent: "agent-" + port}, err
	}})
	fmt.Println("\nhub", h.address)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		// What a principal needs beside its agents: probes, its API server, Redis.
		for range 40 {
			f, err := os.Open(os.Args[0])
			if err != nil {
				fmt.Println("hub", err)
				return
			}
			t.Cleanup(func() { _ = f.Close() })
		}
		fmt.Println("hub", len(h.Conns()), h.Counters().Refused()[refusedFull] > 0, strings.Contains(h.log.String(), "raise the limit of open files"))
	}
}

func TestMoreAgentsThanFiles(t *testing.T) {
	hub := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" -test.run '^TestHubWithFewFiles$'`, fewFiles), os.Args[0])
	hub.Env = append(os.Environ(), "LINK_TEST_FEW_FILES=1")
	stdin, err := hub.StdinPipe()
	must(t, err)
	stdout, err := hub.StdoutPipe()
	must(t, err)
	must(t, hub.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = hub.Wait()
	})
	said := bufio.NewScanner(stdout)
	says := func() string {
		t.Helper()
		for said.Scan() {
			if text, ok := strings.CutPrefix(said.Text(), "hub "); ok {
				return text
			}
		}
		t.Fatal("the hub has ended")
		return ""
	}
	address := says()
	room := connsFor(fewFiles)
	var in []*spoke
	for range room {
		s := dial(t, DialerConfig{Address: address})
		s.next("connected")
		in = append(in, s)
	}
	for range 5 {
		late := dial(t, DialerConfig{Address: address})
		_ = late.failure()
		late.stop()
	}
	_, err = fmt.Fprintln(stdin, "how are you?")
	must(t, err)
	if got, want := says(), fmt.Sprint(room, true, true); got != want {
		t.Errorf("the hub says %q instead of %q", got, want)
	}
	in[0].stop()
	dial(t, DialerConfig{Address: address}).next("connected") // there is room for one again
	for i, s := range in[1:] {
		select {
		case event := <-s.calls:
			t.Errorf("agent %d was connected, and then: %s", i+1, event.what)
		default:
		}
	}
}
