package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ClusterState is what the principal knows about the cluster of an agent.
type ClusterState struct {
	Agent     string
	Server    string // as in the cluster's Secret; Argo CD looks the entry up by it
	Connected bool
	Since     time.Time // of the connection or of its end

	Version      string // of the API server; empty: what the agent's Argo CD says
	Applications int64  // negative: what the agent's Argo CD says
}

// ClusterInfo keeps the entries from which Argo CD's cluster page is drawn. They expire soon after nobody renews them, so the
// page never says "connected" for long after both sides died.
type ClusterInfo struct {
	Hub        Endpoint
	Tunnels    Dialer
	States     func() []ClusterState // of the agents that this principal answers for
	Compressed bool                  // as the hub's Argo CD is set
	Version    string                // of Argo CD's cache: default 1.8.3
	TTL        time.Duration         // default 60 s
	Every      time.Duration         // default 20 s
	Log        *slog.Logger

	once    sync.Once
	changed chan struct{}
	places  chan struct{}
	asking  sync.WaitGroup

	mu      sync.Mutex
	dirty   map[string]bool   // agents whose state changed
	learned map[string]bool   // agents of which something new is known
	asked   map[string]bool   // agents that are being asked
	known   map[string][]byte // by agent: the last entry of its own Argo CD
}

const (
	inCluster       = "https://kubernetes.default.svc"
	clusterParallel = 32
	clusterPatience = 5 * time.Second
)

func (c *ClusterInfo) init() {
	c.once.Do(func() {
		orDefault(&c.Version, "1.8.3")
		orDefault(&c.TTL, time.Minute)
		orDefault(&c.Every, 20*time.Second)
		if c.Log == nil {
			c.Log = slog.New(slog.DiscardHandler)
		}
		c.changed = make(chan struct{}, 1)
		c.places = make(chan struct{}, clusterParallel)
		c.dirty, c.learned, c.asked = map[string]bool{}, map[string]bool{}, map[string]bool{}
		c.known = map[string][]byte{}
	})
}

// Changed says that an agent has connected or gone: its entry is written at once.
func (c *ClusterInfo) Changed(agent string) {
	c.init()
	c.mu.Lock()
	c.dirty[agent] = true
	c.mu.Unlock()
	poke(c.changed)
}

// Run renews the entries until ctx ends. Agents are asked meanwhile, and their entries written again when they have
// answered: one that is slow holds up no entry, not even its own.
func (c *ClusterInfo) Run(ctx context.Context) error {
	c.init()
	var hub *client
	defer func() {
		c.asking.Wait()
		if hub != nil {
			hub.shut()
		}
	}()
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	due := c.all()
	said := ""
	for {
		c.ask(ctx, due)
		var err error
		switch hub, err = c.write(ctx, hub, due); {
		case err == nil && said != "":
			c.Log.InfoContext(ctx, "The entries of the cluster page are renewed again")
			said = ""
		case err != nil && ctx.Err() == nil && err.Error() != said: // it is tried again and again
			said = err.Error()
			c.Log.WarnContext(ctx, "Cannot renew the entries of the cluster page; is --redis-server-address right?", "error", err)
		}
		select {
		case <-ticker.C:
			due = c.all()
		case <-c.changed:
			due = c.news()
		case <-ctx.Done():
			return nil
		}
	}
}

// all states. What is known of agents that are no more is forgotten.
func (c *ClusterInfo) all() []ClusterState {
	states := c.States()
	c.forget(states)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range states {
		c.dirty[s.Agent] = true
	}
	return states
}

// news are the states of those agents that changed, or were learned of, since the last time.
func (c *ClusterInfo) news() []ClusterState {
	c.mu.Lock()
	dirty, learned := maps.Clone(c.dirty), c.learned
	c.learned = map[string]bool{}
	c.mu.Unlock()
	var due []ClusterState
	for _, s := range c.States() {
		if dirty[s.Agent] || learned[s.Agent] {
			due = append(due, s)
		}
	}
	return due
}

// forget what is known of agents that are no more.
func (c *ClusterInfo) forget(states []ClusterState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[string][]byte, len(states))
	for _, s := range states {
		if info := c.known[s.Agent]; info != nil {
			known[s.Agent] = info
		}
	}
	c.known = known
}

// write puts entries into the hub's Redis, and returns the connection for the next time.
func (c *ClusterInfo) write(ctx context.Context, hub *client, states []ClusterState) (*client, error) {
	if len(states) == 0 {
		return hub, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if hub == nil || hub.failure() != nil {
		conn, err := c.Hub.connect(ctx)
		if err != nil {
			return nil, err
		}
		hub = newClient(conn, limits{bulk: maxLine, elements: 16, total: maxLine})
	}
	replies := make([]<-chan []byte, 0, len(states))
	for _, s := range states {
		request, err := c.request(s)
		if err != nil {
			return hub, fmt.Errorf("entry of agent %s: %w", s.Agent, err)
		}
		reply, err := hub.send(ctx, request)
		if err != nil {
			return hub, err
		}
		replies = append(replies, reply)
	}
	for _, reply := range replies {
		select {
		case b, open := <-reply:
			if !open {
				return hub, hub.failure()
			}
			if _, err := bulks(b); err != nil {
				return hub, err
			}
		case <-ctx.Done():
			hub.close(context.Cause(ctx))
			return hub, context.Cause(ctx)
		}
	}
	return hub, nil
}

// request is the SET of one entry.
func (c *ClusterInfo) request(s ClusterState) ([]byte, error) {
	c.mu.Lock()
	known := c.known[s.Agent]
	c.mu.Unlock()
	value, err := clusterEntry(s, known)
	if err != nil {
		return nil, err
	}
	key := "cluster|info|" + s.Server + "|" + c.Version
	if c.Compressed {
		key += gzipSuffix
		if value, err = zip(value); err != nil {
			return nil, err
		}
	}
	return appendCommand(nil, "SET", key, string(value), "PX", strconv.FormatInt(c.TTL.Milliseconds(), 10)), nil
}

// ask starts to ask those agents whose state changed what their Argo CD says of its cluster.
func (c *ClusterInfo) ask(ctx context.Context, states []ClusterState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range states {
		if !c.dirty[s.Agent] {
			continue
		}
		delete(c.dirty, s.Agent)
		if s.Connected && !c.asked[s.Agent] {
			c.asked[s.Agent] = true
			c.asking.Go(func() { c.learn(ctx, s.Agent) })
		}
	}
}

func (c *ClusterInfo) learn(ctx context.Context, agent string) {
	c.places <- struct{}{}
	defer func() { <-c.places }()
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	info, err := c.read(ctx, agent)
	if err != nil {
		c.Log.DebugContext(ctx, "Cannot read what an agent's Argo CD says of its cluster", "agent", agent, "error", err)
	}
	c.mu.Lock()
	delete(c.asked, agent)
	if err == nil && len(info) > 0 && !bytes.Equal(info, c.known[agent]) {
		c.known[agent] = info
		c.learned[agent] = true
	}
	c.mu.Unlock()
	poke(c.changed)
}

// read returns the entry that an agent's Argo CD keeps of its own cluster.
func (c *ClusterInfo) read(ctx context.Context, agent string) ([]byte, error) {
	conn, err := c.Tunnels.Dial(ctx, agent)
	if err != nil {
		return nil, err
	}
	const most = 4 << 20
	line := newClient(conn, limits{bulk: most, elements: 16, total: 2*most + maxLine})
	defer line.shut()
	key := "cluster|info|" + inCluster + "|" + c.Version
	reply, err := line.do(ctx, "MGET", key, key+gzipSuffix)
	if err != nil {
		return nil, err
	}
	values, err := bulks(reply)
	if err != nil || len(values) != 2 {
		return nil, errors.Join(err, errUnexpected)
	}
	info := values[0]
	if values[1] != nil {
		if info, err = unzip(values[1], most); err != nil {
			return nil, err
		}
	}
	if info == nil {
		return nil, nil
	}
	return info, rawjson.Check(info, most)
}

var errUnexpected = errors.New("unexpected answer")

// clusterEntry is what Argo CD reads: its ClusterInfo. What the agent's Argo CD says is kept as it is.
func clusterEntry(s ClusterState, known []byte) ([]byte, error) {
	entry, err := rawjson.Split(known)
	if err != nil || known == nil {
		entry = nil
	}
	status, is := "Failed", "disconnected"
	if s.Connected {
		status, is = "Successful", "connected"
	}
	state, err := json.Marshal(map[string]any{
		"status":      status,
		"message":     fmt.Sprintf("Agent: '%s' is %s with principal", s.Agent, is),
		"attemptedAt": timestamp(s.Since),
	})
	if err != nil {
		return nil, err
	}
	entry.Set("connectionState", state)
	if s.Version != "" {
		entry.Set("serverVersion", rawjson.Quote(s.Version))
	}
	if s.Applications >= 0 {
		entry.Set("applicationsCount", strconv.AppendInt(nil, s.Applications, 10))
	} else if entry.Get("applicationsCount") == nil {
		entry.Set("applicationsCount", []byte("0"))
	}
	return entry.Bytes(), nil
}

// timestamp is a time as Kubernetes writes it; nil: there is none.
func timestamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}
