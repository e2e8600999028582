package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/raw"
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

	mu    sync.Mutex
	dirty map[string]bool   // agents that changed
	known map[string][]byte // by agent: the last entry of its own Argo CD
}

const (
	inCluster       = "https://kubernetes.default.svc"
	clusterParallel = 32
	clusterPatience = 2 * time.Second
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
		c.dirty, c.known = map[string]bool{}, map[string][]byte{}
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

// Run renews the entries until ctx ends.
func (c *ClusterInfo) Run(ctx context.Context) error {
	c.init()
	var hub *client
	defer func() {
		if hub != nil {
			hub.shut()
		}
	}()
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	due, all := c.States(), true
	for {
		hub = c.round(ctx, hub, due, all)
		select {
		case <-ticker.C:
			due, all = c.States(), true
		case <-c.changed:
			due, all = c.dirtyStates(), false
		case <-ctx.Done():
			return nil
		}
	}
}

// dirtyStates are the states of those agents that changed since the last time.
func (c *ClusterInfo) dirtyStates() []ClusterState {
	c.mu.Lock()
	dirty := c.dirty
	c.dirty = map[string]bool{}
	c.mu.Unlock()
	var due []ClusterState
	for _, s := range c.States() {
		if dirty[s.Agent] {
			due = append(due, s)
		}
	}
	return due
}

// round writes entries with what is known, then asks the agents, and writes again where that told something new. So an
// agent that is slow to answer holds up no entry, not even its own.
func (c *ClusterInfo) round(ctx context.Context, hub *client, due []ClusterState, all bool) *client {
	if all {
		c.forget(due)
	}
	hub, err := c.write(ctx, hub, due)
	if err == nil {
		hub, err = c.write(ctx, hub, c.learn(ctx, due))
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("Cannot renew the entries of the cluster page", "error", err)
	}
	return hub
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

// learn asks the agents that are connected what their Argo CD says of its cluster, and returns those that said something
// new.
func (c *ClusterInfo) learn(ctx context.Context, states []ClusterState) []ClusterState {
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	var (
		asking  sync.WaitGroup
		places  = make(chan struct{}, clusterParallel)
		mu      sync.Mutex
		learned []ClusterState
	)
	for _, s := range states {
		if !s.Connected {
			continue
		}
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			info, err := c.ask(ctx, s.Agent)
			if err != nil {
				c.Log.Debug("Cannot read what an agent's Argo CD says of its cluster", "agent", s.Agent, "error", err)
			}
			if len(info) == 0 {
				return
			}
			mu.Lock()
			learned = append(learned, s)
			mu.Unlock()
			c.mu.Lock()
			c.known[s.Agent] = info
			c.mu.Unlock()
		})
	}
	asking.Wait()
	return learned
}

// ask reads the entry that an agent's Argo CD keeps of its own cluster.
func (c *ClusterInfo) ask(ctx context.Context, agent string) ([]byte, error) {
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
	if values[1] != nil {
		return unzip(values[1], most)
	}
	return values[0], nil
}

var errUnexpected = errors.New("unexpected answer")

// clusterEntry is what Argo CD reads: its ClusterInfo. What the agent's Argo CD says is kept as it is.
func clusterEntry(s ClusterState, known []byte) ([]byte, error) {
	entry, err := raw.Split(known)
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
		entry.Set("serverVersion", raw.Quote(s.Version))
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
