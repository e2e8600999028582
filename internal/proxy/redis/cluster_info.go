package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// ClusterState is what the principal knows about the cluster of an agent.
type ClusterState struct {
	Agent        string
	Server       string // of the cluster Secret. Argo CD looks up the entry by it.
	Connected    bool
	Since        time.Time // of the connection or the disconnection
	Applications int64
}

// ClusterInfo writes the entries of Argo CD's cluster page. They expire soon after the last write, so the page does not
// show "connected" for long after both sides have failed.
type ClusterInfo struct {
	hub        Endpoint
	dial       DialFunc
	states     func() []ClusterState
	compressed bool
	log        *slog.Logger

	changed chan struct{}
	places  chan struct{} // limits parallel reads
	reads   sync.WaitGroup

	mu     sync.Mutex
	agents map[string]*agentInfo
}

// NewClusterInfo returns a ClusterInfo for the agents for which this principal replica answers. Entries are compressed if
// the hub's Argo CD compresses its own.
func NewClusterInfo(hub Endpoint, dial DialFunc, states func() []ClusterState, compressed bool, log *slog.Logger) *ClusterInfo {
	return &ClusterInfo{
		hub: hub, dial: dial, states: states, compressed: compressed, log: orDiscard(log),
		changed: make(chan struct{}, 1), places: make(chan struct{}, 32), agents: map[string]*agentInfo{},
	}
}

// agentInfo is what ClusterInfo knows of one agent.
type agentInfo struct {
	changed  bool   // the entry has to be written
	outdated bool   // info has to be read
	reading  bool   // a goroutine reads info
	info     []byte // the entry of the agent's Argo CD
}

const (
	cacheVersion     = "1.8.3" // of Argo CD's cache
	inCluster        = "https://kubernetes.default.svc"
	clusterInfoTTL   = time.Minute
	clusterInfoEvery = 20 * time.Second
	maxClusterInfo   = 4 << 20
)

// agent returns what is known of an agent. The caller must hold c.mu.
func (c *ClusterInfo) agent(name string) *agentInfo {
	if c.agents[name] == nil {
		c.agents[name] = &agentInfo{}
	}
	return c.agents[name]
}

// Changed reports that an agent connected or disconnected. Its entry is written immediately.
func (c *ClusterInfo) Changed(agent string) {
	c.mu.Lock()
	a := c.agent(agent)
	a.changed, a.outdated = true, true
	c.mu.Unlock()
	poke(c.changed)
}

// Run renews the entries until ctx ends. It reads the entries of agents in parallel, so that a slow agent delays no entry.
func (c *ClusterInfo) Run(ctx context.Context) error {
	defer c.reads.Wait()
	ticker := time.NewTicker(clusterInfoEvery)
	defer ticker.Stop()
	var logged logonce.One
	for all := true; ; {
		switch err := c.write(ctx, c.due(ctx, all)); {
		case err == nil && logged.Reset():
			c.log.InfoContext(ctx, "Cluster info entries are renewed again")
		case err != nil && ctx.Err() == nil && logged.Changed(err.Error()):
			c.log.WarnContext(ctx, "Failed to renew cluster info entries, check --redis-server-address", "error", err)
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
	states := c.states()
	c.mu.Lock()
	defer c.mu.Unlock()
	var due []ClusterState
	exists := map[string]bool{}
	for _, s := range states {
		exists[s.Agent] = true
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
	maps.DeleteFunc(c.agents, func(name string, _ *agentInfo) bool { return !exists[name] })
	return due
}

// write writes entries to the hub's Redis.
func (c *ClusterInfo) write(ctx context.Context, states []ClusterState) error {
	if len(states) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.hub.connect(ctx)
	if err != nil {
		return err
	}
	hub := newRequestConn(conn, shortReply)
	defer hub.close()
	var requests []byte
	for _, s := range states {
		if requests, err = c.appendRequest(requests, s); err != nil {
			return fmt.Errorf("entry of agent %s: %w", s.Agent, err)
		}
	}
	replies, err := hub.doRaw(ctx, len(states), requests)
	for _, reply := range replies {
		if _, failed := decode(reply); failed != nil {
			err = failed
		}
	}
	return err
}

// appendRequest appends the SET of one entry.
func (c *ClusterInfo) appendRequest(out []byte, s ClusterState) ([]byte, error) {
	c.mu.Lock()
	info := c.agent(s.Agent).info
	c.mu.Unlock()
	value, err := clusterEntry(s, info)
	key := "cluster|info|" + s.Server + "|" + cacheVersion
	if c.compressed && err == nil {
		key += gzipSuffix
		value, err = zip(value)
	}
	return appendCommand(out, "SET", key, string(value), "PX", strconv.FormatInt(clusterInfoTTL.Milliseconds(), 10)), err
}

// update reads the entry of an agent's Argo CD.
func (c *ClusterInfo) update(ctx context.Context, agent string) {
	c.places <- struct{}{}
	defer func() { <-c.places }()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	info, err := c.read(ctx, agent)
	if err != nil {
		c.log.DebugContext(ctx, "Failed to read cluster info of agent", "agent", agent, "error", err)
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
	tunnel, err := c.dial(ctx, agent)
	if err != nil {
		return nil, err
	}
	conn := newRequestConn(tunnel, limits{bulk: maxClusterInfo, elements: 16, total: 2*maxClusterInfo + maxLine})
	defer conn.close()
	info, err := conn.get(ctx, "cluster|info|"+inCluster+"|"+cacheVersion, maxClusterInfo)
	if err != nil || info == nil {
		return nil, err
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
	entry.Set("applicationsCount", strconv.AppendInt(nil, s.Applications, 10))
	return entry.Bytes(), nil
}
