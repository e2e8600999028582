package grpc

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// fewFiles is the limit of open files of a hub in a process of its own.
const fewFiles = 150

// TestHubProcess_HasFewFiles is that process, if TestServer_SurvivesMoreAgentsThanFiles has started it.
func TestHubProcess_HasFewFiles(t *testing.T) {
	if os.Getenv("TRANSPORT_TEST_FEW_FILES") == "" {
		return
	}
	h := startHub(t, hubConfig{Authenticate: func(c transport.Credentials) (transport.Peer, error) {
		_, port, err := net.SplitHostPort(c.RemoteAddr.String())
		return transport.Peer{Agent: "agent-" + port}, err
	}})
	fmt.Println("\nhub", h.address)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		// What a principal needs in addition to agents: probes, the API server, Redis.
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

func TestServer_SurvivesMoreAgentsThanFiles(t *testing.T) {
	hub := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" -test.run '^TestHubProcess_HasFewFiles$'`, fewFiles), os.Args[0])
	hub.Env = append(os.Environ(), "TRANSPORT_TEST_FEW_FILES=1")
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
	room := connLimit(fewFiles)
	var in []*spoke
	for range room {
		s := dial(t, spokeConfig{Address: address})
		s.next("connected")
		in = append(in, s)
	}
	for range 5 {
		late := dial(t, spokeConfig{Address: address})
		_ = late.failure()
		late.stop()
	}
	_, err = fmt.Fprintln(stdin, "how are you?")
	must(t, err)
	if got, want := says(), fmt.Sprint(room, true, true); got != want {
		t.Errorf("the hub says %q instead of %q", got, want)
	}
	in[0].stop()
	dial(t, spokeConfig{Address: address}).next("connected") // there is room for one again
	for i, s := range in[1:] {
		select {
		case event := <-s.calls:
			t.Errorf("agent %d was connected, and then: %s", i+1, event.what)
		default:
		}
	}
}
