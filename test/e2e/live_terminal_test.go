package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// terminal is an exec session of the Argo CD UI.
type terminal struct {
	conn *websocket.Conn

	mu   sync.Mutex
	said string // all output
	end  error  // reason of its end
}

// keys is a message of the UI.
type keys struct {
	Operation string `json:"operation"`
	Data      string `json:"data"`
	Rows      int    `json:"rows"`
	Cols      int    `json:"cols"`
}

// openTerminal opens an exec session in a pod of the Application. If shell is empty, argocd-server uses the first that
// works.
func (s *subject) openTerminal(t testing.TB, pod, shell string) (*terminal, error) {
	t.Helper()
	query := url.Values{"pod": {pod}, "container": {"web"}, "appName": {s.hub.name}, "appNamespace": {s.hub.namespace},
		"projectName": {s.project}, "namespace": {s.workload}, "shell": {shell}}
	config, err := websocket.NewConfig("wss://"+s.w.ArgoCD.Address+"/terminal?"+query.Encode(), "https://"+s.w.ArgoCD.Address)
	if err != nil {
		t.Fatal(err)
	}
	config.Header = http.Header{"Cookie": {"argocd.token=" + s.w.ArgoCD.Token}}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(readFile(t, s.w.ArgoCD.CAFile))
	config.TlsConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	conn, err := websocket.DialConfig(config)
	if err != nil {
		return nil, err
	}
	term := &terminal{conn: conn}
	go term.read()
	t.Cleanup(func() { _ = conn.Close() })
	return term, nil
}

func (term *terminal) read() {
	for {
		var message keys
		err := websocket.JSON.Receive(term.conn, &message)
		term.mu.Lock()
		term.said += message.Data
		term.end = err
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) types(t testing.TB, text string) {
	t.Helper()
	if err := websocket.JSON.Send(term.conn, keys{Operation: "stdin", Data: text}); err != nil {
		t.Fatalf("type into the terminal: %v", err)
	}
}

// shows waits until the terminal shows a text.
func (term *terminal) shows(t testing.TB, text string) {
	t.Helper()
	await(t, "the terminal to show "+text, func() error {
		term.mu.Lock()
		defer term.mu.Unlock()
		if strings.Contains(term.said, text) {
			return nil
		}
		return &shownError{term.said, term.end}
	})
}

// answers sends a message and types a line, repeatedly, until the terminal shows a text.
func (term *terminal) answers(t testing.TB, first keys, line, text string) {
	t.Helper()
	await(t, "the terminal to show "+text, func() error {
		if err := websocket.JSON.Send(term.conn, first); err != nil {
			t.Fatalf("%s: %v", first.Operation, err)
		}
		term.types(t, line)
		time.Sleep(50 * time.Millisecond) // limits the number of repetitions
		term.mu.Lock()
		defer term.mu.Unlock()
		if strings.Contains(term.said, text) {
			return nil
		}
		return &shownError{term.said, term.end}
	})
}

type shownError struct {
	said string
	end  error
}

func (e *shownError) Error() string {
	text := "it shows " + e.said
	if e.end != nil {
		text += ", and has ended: " + e.end.Error()
	}
	return text
}

func terminals(t *testing.T, s *subject) {
	t.Helper()
	pod := s.pod(t)
	for _, shell := range []string{"bash", "sh", ""} {
		term, err := s.openTerminal(t, pod, shell)
		if err != nil {
			t.Fatalf("open a terminal with %q: %v", shell, err)
		}
		// argocd-server can send early input to a shell that failed to start, so the line is typed repeatedly.
		term.answers(t, keys{Operation: "stdin"}, "echo the shell is $0, $((6*7))\n", ", 42")
		if shell == "" {
			shell = "sh" // the first existing shell in the list of argocd-server
		}
		term.shows(t, "the shell is "+shell)
		term.answers(t, keys{Operation: "resize", Rows: 33, Cols: 101}, "echo size: $(stty size)\n", "size: 33 101")
		term.answers(t, keys{Operation: "stdin"}, "echo of stderr >&2\n", "\nof stderr")
		await(t, "the terminal to end with its shell", func() error {
			_ = websocket.JSON.Send(term.conn, keys{Operation: "stdin", Data: "exit\n"}) // fails if the session has ended
			time.Sleep(50 * time.Millisecond)
			term.mu.Lock()
			defer term.mu.Unlock()
			if term.end == nil {
				return &shownError{term.said, nil}
			}
			return nil
		})
	}
}
