package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Trees follows the resource trees that Argo CD's controller keeps in a Redis: which objects belong to an Application.
type Trees struct {
	Redis   Endpoint
	Version string // of Argo CD's cache: default 1.8.3

	// Apps lists the Applications whose trees are wanted, as keys name them: "<name>" or "<namespace>_<name>". It is asked
	// after every connect, for whatever has changed meanwhile.
	Apps func() []string
	// Changed is told of a tree, in as many parts as it is kept in: JSON; none: there is no tree.
	Changed func(app string, parts [][]byte)

	Log *slog.Logger // nil: silent

	mu   sync.Mutex
	todo map[string]bool // Applications whose trees have to be read
	all  bool            // and so have those that Apps lists
	wake chan struct{}   // of one: there is something to do
}

const (
	largestTree = 128 << 20 // bounds what is read of one part
	mostTodo    = 100_000   // names that are remembered; beyond it all trees are read
)

// Look has an Application's tree read soon. It is for one that is wanted from now on, whose tree may be older. It does
// not wait.
func (t *Trees) Look(app string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.todo == nil || len(t.todo) >= mostTodo {
		t.all = t.all || t.todo != nil
		t.todo = map[string]bool{}
	}
	t.todo[app] = true
	poke(t.waker())
}

// waker is called under mu.
func (t *Trees) waker() chan struct{} {
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return t.wake
}

// next takes an Application whose tree has to be read; false: there is none.
func (t *Trees) next() (app string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all {
		t.all = false
		t.mu.Unlock()
		apps := t.Apps()
		t.mu.Lock()
		if t.todo == nil {
			t.todo = map[string]bool{}
		}
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

// Run follows until ctx ends. While Redis is away the last known trees stay.
func (t *Trees) Run(ctx context.Context) error {
	orDefault(&t.Version, "1.8.3")
	if t.Log == nil {
		t.Log = slog.New(slog.DiscardHandler)
	}
	said := false
	for pause := 200 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		began := time.Now()
		err := t.follow(ctx)
		if time.Since(began) > time.Minute {
			pause, said = 200*time.Millisecond, false
		}
		if !said && ctx.Err() == nil {
			said = true
			t.Log.WarnContext(ctx, "cannot follow resource trees; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// follow reads every tree once and then those that the controller says have changed.
func (t *Trees) follow(ctx context.Context) error {
	conn, err := t.Redis.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	asking, err := t.Redis.connect(ctx)
	if err != nil {
		return err
	}
	bound := limits{bulk: largestTree, elements: 16, total: largestTree + 1024}
	client := newClient(asking, bound)
	defer client.shut()

	if _, err := conn.Write(appendCommand(nil, "PSUBSCRIBE", "app|"+string(ManagedResources)+"|*|"+t.Version)); err != nil {
		return fmt.Errorf("subscribe to changes of resource trees: %w", err)
	}
	messages := newReader(conn, limits{bulk: 64 << 10, elements: 16, total: 256 << 10})
	confirmed, err := messages.next()
	if err == nil {
		_, err = bulks(confirmed)
	}
	if err != nil {
		return fmt.Errorf("subscribe to changes of resource trees: %w", err)
	}
	t.mu.Lock()
	t.all = true
	wake := t.waker()
	t.mu.Unlock()
	failed := make(chan error, 1)
	go func() { failed <- t.listen(messages) }()
	for {
		for app, ok := t.next(); ok && err == nil; app, ok = t.next() {
			err = t.read(ctx, client, app)
		}
		if err != nil {
			_ = conn.Close()
			<-failed
			return err
		}
		select {
		case <-wake:
		case err := <-failed:
			return err
		}
	}
}

// listen notes the changes that the controller tells, until the connection ends.
func (t *Trees) listen(messages *reader) error {
	for {
		reply, err := messages.next()
		if err != nil {
			return fmt.Errorf("read changes of resource trees: %w", err)
		}
		parts, err := bulks(reply)
		if err != nil || len(parts) < 3 {
			return protocolError("an unexpected message")
		}
		if key, ok := parseKey(parts[2]); ok {
			t.Look(key.app)
		}
	}
}

// read reads an Application's tree. Argo CD splits a large one into shards; the first says how many there are.
func (t *Trees) read(ctx context.Context, c *client, app string) error {
	var parts [][]byte
	for shard, shards := 0, 1; shard < min(shards, 10_000); shard++ {
		key := "app|" + string(ResourcesTree) + "|" + app + "|"
		if shard > 0 {
			key += strconv.Itoa(shard) + "|"
		}
		part, err := t.get(ctx, c, key+t.Version)
		if err != nil {
			return err
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
	t.Changed(app, parts)
	return nil
}

// get reads a value, compressed or not; nil: there is none.
func (t *Trees) get(ctx context.Context, c *client, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reply, err := c.do(ctx, "MGET", key+gzipSuffix, key)
	if err != nil {
		return nil, fmt.Errorf("read a resource tree: %w", err)
	}
	values, err := bulks(reply)
	if err == nil && len(values) != 2 {
		err = protocolError("%d values for two keys", len(values))
	}
	if err != nil {
		return nil, fmt.Errorf("read a resource tree: %w", err)
	}
	if values[0] == nil {
		return values[1], nil
	}
	tree, err := unzip(values[0], largestTree)
	if err != nil { // the next one may be fine, and others are
		t.Log.WarnContext(ctx, "cannot read a resource tree", "key", key, "error", err)
		return nil, nil
	}
	return tree, nil
}
