package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ClusterState is what the principal knows about the cluster of an agent.
type ClusterState struct {
	Agent     string
	Server    string // of the cluster Secret. Argo CD looks up the entry by it.
	Connected bool
	Since     time.Time // of the connection or the disconnection

	Version      string // of the API server. If empty, the version that the agent's Argo CD reports.
	Applications int64  // if negative, the number that the agent's Argo CD reports
}

// ClusterInfo writes the entries of Argo CD's cluster page. They expire soon after the last write, so the page does not
// show "connected" for long after both sides have failed.
type ClusterInfo struct {
	Hub        Endpoint
	Tunnels    Dialer
	States     func() []ClusterState // of the agents for which this principal replica answers
	Compressed bool                  // as in the hub's Argo CD
	Version    string                // of Argo CD's cache: default 1.8.3
	TTL        time.Duration         // default 60 s
	Every      time.Duration         // default 20 s
	Log        *slog.Logger

	once    sync.Once
	changed chan struct{}
	places  chan struct{} // limits parallel reads
	reads   sync.WaitGroup

	mu     sync.Mutex
	agents map[string]*agentInfo
}

// agentInfo is what ClusterInfo knows of one agent.
type agentInfo struct {
	changed  bool   // the entry has to be written
	outdated bool   // info has to be read
	reading  bool   // a goroutine reads info
	info     []byte // the entry of the agent's Argo CD
}

const (
	inCluster          = "https://kubernetes.default.svc"
	clusterInfoReads   = 32
	clusterInfoTimeout = 5 * time.Second
	maxClusterInfo     = 4 << 20
)

func (c *ClusterInfo) init() {
	c.once.Do(func() {
		orDefault(&c.Version, "1.8.3")
		orDefault(&c.TTL, time.Minute)
		orDefault(&c.Every, 20*time.Second)
		c.Log = orDiscard(c.Log)
		c.changed = make(chan struct{}, 1)
		c.places = make(chan struct{}, clusterInfoReads)
		c.agents = map[string]*agentInfo{}
	})
}

// agent returns what is known of an agent. The caller must hold c.mu.
func (c *ClusterInfo) agent(name string) *agentInfo {
	if c.agents[name] == nil {
		c.agents[name] = &agentInfo{}
	}
	return c.agents[name]
}

// Changed reports that an agent connected or disconnected. Its entry is written immediately.
func (c *ClusterInfo) Changed(agent string) {
	c.init()
	c.mu.Lock()
	a := c.agent(agent)
	a.changed, a.outdated = true, true
	c.mu.Unlock()
	poke(c.changed)
}

// Run renews the entries until ctx ends. It reads the entries of agents in parallel, so that a slow agent delays no entry.
func (c *ClusterInfo) Run(ctx context.Context) error {
	c.init()
	var hub *requestConn
	defer func() {
		c.reads.Wait()
		if hub != nil {
			hub.shut()
		}
	}()
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	logged := ""
	for all := true; ; {
		due := c.due(ctx, all)
		var err error
		switch hub, err = c.write(ctx, hub, due); {
		case err == nil && logged != "":
			c.Log.InfoContext(ctx, "Cluster info entries are renewed again")
			logged = ""
		case err != nil && ctx.Err() == nil && err.Error() != logged:
			logged = err.Error()
			c.Log.WarnContext(ctx, "Failed to renew cluster info entries, check --redis-server-address", "error", err)
		}
		select {
		case <-ticker.C:
			all = true
		case <-c.changed:
			all = false
		case <-ctx.Done():
			return nil
		}
	}
}

// due returns the states to write: those of changed agents, or all. It starts to read the entries of connected agents.
func (c *ClusterInfo) due(ctx context.Context, all bool) []ClusterState {
	states := c.States()
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.agents
	if all { // agents that do not exist any longer are dropped
		c.agents = make(map[string]*agentInfo, len(states))
	}
	var due []ClusterState
	for _, s := range states {
		if a := known[s.Agent]; a != nil {
			c.agents[s.Agent] = a
		} else if !all {
			continue
		}
		a := c.agent(s.Agent)
		if !all && !a.changed {
			continue
		}
		due = append(due, s)
		if (all || a.outdated) && s.Connected && !a.reading {
			a.reading = true
			c.reads.Go(func() { c.update(ctx, s.Agent) })
		}
		a.changed, a.outdated = false, false
	}
	return due
}

// write writes entries to the hub's Redis, and returns the connection for the next call.
func (c *ClusterInfo) write(ctx context.Context, hub *requestConn, states []ClusterState) (*requestConn, error) {
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
		hub = newRequestConn(conn, limits{bulk: maxLine, elements: 16, total: maxLine})
	}
	var requests []byte
	for _, s := range states {
		var err error
		if requests, err = c.appendRequest(requests, s); err != nil {
			return hub, fmt.Errorf("entry of agent %s: %w", s.Agent, err)
		}
	}
	replies, err := hub.doRaw(ctx, len(states), requests)
	if err != nil {
		hub.close(err)
	}
	for _, reply := range replies {
		if _, failed := decode(reply); failed != nil {
			err = failed
		}
	}
	return hub, err
}

// appendRequest appends the SET of one entry.
func (c *ClusterInfo) appendRequest(out []byte, s ClusterState) ([]byte, error) {
	c.mu.Lock()
	info := c.agent(s.Agent).info
	c.mu.Unlock()
	value, err := clusterEntry(s, info)
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
	return appendCommand(out, "SET", key, string(value), "PX", strconv.FormatInt(c.TTL.Milliseconds(), 10)), nil
}

// update reads the entry of an agent's Argo CD.
func (c *ClusterInfo) update(ctx context.Context, agent string) {
	c.places <- struct{}{}
	defer func() { <-c.places }()
	ctx, cancel := context.WithTimeout(ctx, clusterInfoTimeout)
	defer cancel()
	info, err := c.read(ctx, agent)
	if err != nil {
		c.Log.DebugContext(ctx, "Failed to read cluster info of agent", "agent", agent, "error", err)
	}
	c.mu.Lock()
	a := c.agent(agent)
	a.reading = false
	if err == nil && len(info) > 0 && !bytes.Equal(info, a.info) {
		a.info, a.changed = info, true
	}
	c.mu.Unlock()
	poke(c.changed)
}

// read returns the entry that an agent's Argo CD has for its own cluster.
func (c *ClusterInfo) read(ctx context.Context, agent string) ([]byte, error) {
	tunnel, err := c.Tunnels.Dial(ctx, agent)
	if err != nil {
		return nil, err
	}
	conn := newRequestConn(tunnel, limits{bulk: maxClusterInfo, elements: 16, total: 2*maxClusterInfo + maxLine})
	defer conn.shut()
	key := "cluster|info|" + inCluster + "|" + c.Version
	values, err := conn.do(ctx, "MGET", key, key+gzipSuffix)
	if err != nil || len(values) != 2 {
		return nil, errors.Join(err, fmt.Errorf("%d values for two keys", len(values)))
	}
	info := values[0]
	if values[1] != nil {
		if info, err = unzip(values[1], maxClusterInfo); err != nil {
			return nil, err
		}
	}
	if info == nil {
		return nil, nil
	}
	return info, rawjson.Check(info, maxClusterInfo)
}

// clusterEntry returns the ClusterInfo that Argo CD reads. Other fields of the agent's entry are kept.
func clusterEntry(s ClusterState, info []byte) ([]byte, error) {
	entry, err := rawjson.Split(info)
	if err != nil || info == nil {
		entry = nil
	}
	status, is := "Failed", "disconnected"
	if s.Connected {
		status, is = "Successful", "connected"
	}
	var since any // null if unknown
	if !s.Since.IsZero() {
		since = s.Since.UTC().Format(time.RFC3339)
	}
	state, err := json.Marshal(map[string]any{
		"status":      status,
		"message":     fmt.Sprintf("Agent: '%s' is %s with principal", s.Agent, is),
		"attemptedAt": since,
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
