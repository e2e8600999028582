package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// Trees follows the resource trees of Applications that Argo CD's controller stores in a Redis.
type Trees struct {
	redis   Endpoint
	apps    func() []string
	changed func(app string, parts [][]byte)
	log     *slog.Logger

	mu   sync.Mutex
	todo map[string]bool // Applications whose trees have to be read
	all  bool            // so do the trees of all that apps lists
	wake chan struct{}   // holds one value if there is something to read
}

const (
	largestTree = 128 << 20 // bytes of one part
	mostTodo    = 100_000   // above this number of Applications, all trees are read
)

// NewTrees returns Trees for Run. apps lists the Applications whose trees are read, as keys name them: "<name>" or
// "<namespace>_<name>". It is called after every connect. changed receives a tree as JSON, in the parts in which it is
// stored. If there is no tree, there are no parts.
func NewTrees(redis Endpoint, apps func() []string, changed func(app string, parts [][]byte), log *slog.Logger) *Trees {
	return &Trees{redis: redis, apps: apps, changed: changed, log: orDiscard(log), todo: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// Look requests the tree of an Application. It does not wait.
func (t *Trees) Look(app string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.todo) < mostTodo {
		t.todo[app] = true
	} else {
		t.all = true
	}
	poke(t.wake)
}

// next returns an Application whose tree has to be read.
func (t *Trees) next() (app string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all {
		t.all = false
		t.mu.Unlock()
		apps := t.apps()
		t.mu.Lock()
		for _, app := range apps {
			t.todo[app] = true
		}
	}
	for app := range t.todo {
		delete(t.todo, app)
		return app, true
	}
	return "", false
}

// Run follows the trees until ctx ends. While Redis is unreachable, changed is not called.
func (t *Trees) Run(ctx context.Context) error {
	logged := false
	for pause := (backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}); ctx.Err() == nil; pause.Wait(ctx, 0) {
		began := time.Now()
		err := t.follow(ctx)
		if time.Since(began) > time.Minute {
			pause.Reset()
			logged = false
		}
		if !logged && ctx.Err() == nil {
			logged = true
			t.log.WarnContext(ctx, "Failed to follow resource trees, retrying", "error", err)
		}
	}
	return nil
}

// follow reads every tree once, and then those that change.
func (t *Trees) follow(ctx context.Context) error {
	conn, err := t.redis.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	requests, err := t.redis.connect(ctx)
	if err != nil {
		return err
	}
	client := newRequestConn(requests, limits{bulk: largestTree, elements: 16, total: largestTree + 1024})
	defer client.close()
	if _, err := conn.Write(appendCommand(nil, "PSUBSCRIBE", "app|"+string(ManagedResources)+"|*|"+cacheVersion)); err != nil {
		return fmt.Errorf("subscribe to changes of resource trees: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- t.readChanges(conn) }()
	for {
		for app, ok := t.next(); ok; app, ok = t.next() {
			if err := t.read(ctx, client, app); err != nil {
				_ = conn.Close()
				<-failed
				return err
			}
		}
		select {
		case <-t.wake:
		case err := <-failed:
			return err
		}
	}
}

// readChanges records changed trees until the connection ends, and all trees when the subscription is confirmed.
func (t *Trees) readChanges(conn net.Conn) error {
	messages := newReplyReader(conn, limits{bulk: maxLine, elements: 16, total: 4 * maxLine})
	for {
		message, err := messages.next()
		var parts [][]byte
		if err == nil {
			parts, err = decode(message)
		}
		if err == nil && len(parts) < 3 {
			err = protocolError("unexpected message")
		}
		if err != nil {
			return fmt.Errorf("read changes of resource trees: %w", err)
		}
		t.mu.Lock()
		t.all = t.all || string(parts[0]) == "psubscribe"
		t.mu.Unlock()
		if key, ok := parseKey(parts[2]); ok {
			t.Look(key.app)
		}
		poke(t.wake)
	}
}

// read reads the tree of an Application. Argo CD splits a large tree into shards. The first shard has their number.
func (t *Trees) read(ctx context.Context, c *requestConn, app string) error {
	var parts [][]byte
	for shard, shards := 0, 1; shard < min(shards, 10_000); shard++ {
		key := "app|" + string(ResourcesTree) + "|" + app + "|"
		if shard > 0 {
			key += strconv.Itoa(shard) + "|"
		}
		part, err := t.get(ctx, c, key+cacheVersion)
		if err != nil {
			return fmt.Errorf("read resource tree: %w", err)
		}
		if part == nil {
			break
		}
		if shard == 0 {
			if n, err := strconv.Atoi(string(rawjson.Get(part, "shardsCount"))); err == nil {
				shards = n
			}
		}
		parts = append(parts, part)
	}
	t.changed(app, parts)
	return nil
}

// get reads a part of a tree. It returns nil if there is none.
func (t *Trees) get(ctx context.Context, c *requestConn, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tree, err := c.get(ctx, key, largestTree)
	if errors.Is(err, errCompression) { // other trees can be readable
		t.log.WarnContext(ctx, "Failed to read resource tree", "key", key, "error", err)
		return nil, nil
	}
	return tree, err
}
