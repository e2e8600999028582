package agentrows

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// About describes the hub whose agents a page shows.
type About struct {
	Hub          string `json:"hub"`
	Command      string `json:"command"`            // argocd-agentctl with the flags for this hub, quoted for a shell
	Expiring     int64  `json:"expiring,omitempty"` // count certificates that expire within this number of seconds
	ArgoCD       string `json:"argocd"`             // base URL of Argo CD's UI, or empty
	Login        string `json:"login"`              // LoginNone or LoginToken
	Applications bool   `json:"applications"`       // whether Applications can be searched
	User         string `json:"user"`               // if empty, unknown
}

// Values of About.Login.
const (
	LoginNone  = "none"
	LoginToken = "token" // requests need a token of the hub's API server
)

// ArgoCDURL returns the URL of Argo CD's UI from its setting, or nothing if a browser must not follow it.
func ArgoCDURL(setting string) string {
	u, err := url.Parse(setting)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Stream sends the rows of a State to one client as server-sent events.
type Stream struct {
	State *State
	About *About // in the first event, and in each that resets
	// Visible returns the names of the agents that the client may see now. It is called before each event. If it returns
	// nil, or is nil, the client sees all.
	Visible func(context.Context) (map[string]bool, error)

	Chunk        int           // approximate size of an event in bytes
	Interval     time.Duration // minimum time between two events
	Heartbeat    time.Duration // maximum time between two events; if 0, there is no maximum
	WriteTimeout time.Duration // of one event
}

// Serve sends changes until the client disconnects or the context ends. An error of Visible is returned before the first
// event, and ends the stream after it.
func (s Stream) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	at := s.State.parseCursor(r.Header.Get("Last-Event-ID")) // set by browsers that reconnect
	var visible map[string]bool
	for first := true; ; first = false {
		wake := s.State.next() // before Visible, which may not know a later row
		if s.Visible != nil {
			now, err := s.Visible(ctx)
			switch {
			case err != nil && first:
				return err
			case err != nil:
				return nil //nolint:nilerr // the status was sent; the next request has the same error
			case !first && (now == nil) == (visible == nil) && maps.Equal(now, visible):
			case !first, now != nil:
				at = cursor{}
			}
			visible = now
		}
		n, next := s.State.since(at, s.Chunk, visible)
		if at = next; first || n.Reset {
			n.About = s.About
		}
		if first {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		instance := s.State.instance
		if visible != nil {
			instance = "restricted" // so that the next stream starts again, with what the client may see then
		}
		if s.send(w, control, n, fmt.Sprintf("%s.%d.%d", instance, at.reset, at.seen)) != nil {
			return nil //nolint:nilerr // the client is gone
		}
		if !n.More && !s.wait(ctx, wake) {
			return nil
		}
	}
}

// wait waits for a change or a heartbeat, but at least Interval, so that a burst of changes becomes one event. It reports
// whether the stream goes on.
func (s Stream) wait(ctx context.Context, wake <-chan struct{}) bool {
	pause := time.After(s.Interval)
	var heartbeat <-chan time.Time
	if s.Heartbeat > 0 {
		heartbeat = time.After(s.Heartbeat)
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-heartbeat:
	}
	select {
	case <-ctx.Done():
		return false
	case <-pause:
		return true
	}
}

// send sends one event. A client that does not read runs into the timeout, reconnects and gets what it missed.
func (s Stream) send(w http.ResponseWriter, control *http.ResponseController, n update, id string) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := control.SetWriteDeadline(time.Now().Add(s.WriteTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "id: %s\ndata: %s\n\n", id, data); err != nil {
		return err
	}
	return control.Flush()
}

// parseCursor parses an event ID. If it is invalid or of another State, it returns the zero value.
func (b *State) parseCursor(id string) cursor {
	instance, numbers, _ := strings.Cut(id, ".")
	var p cursor
	if n, err := fmt.Sscanf(numbers, "%d.%d", &p.reset, &p.seen); err != nil || n != 2 || instance != b.instance {
		return cursor{}
	}
	return p
}
