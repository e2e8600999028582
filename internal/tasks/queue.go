// Package tasks runs work on the hub's cluster in the background and retries it until it succeeds. It extends the
// workqueue of client-go by a timeout per task, a limit of starts, a minimum interval per key, and a pause of all tasks
// while the API server is unavailable.
package tasks

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

const (
	// MinRetryDelay is the delay after the first failure. It doubles with each further failure.
	MinRetryDelay = time.Second
	maxRetryDelay = 2 * time.Minute
	taskTimeout   = 30 * time.Second
	outagePause   = 3 * time.Second // before the next task if the API server is unavailable
)

// Config of a Queue.
type Config struct {
	Name          string // for logs
	Do            func(ctx context.Context, key string) error
	Parallel      int
	Interval      time.Duration // between two starts after the first Burst; if zero, there is no limit
	Burst         int
	MinInterval   time.Duration // between the end of a task and the next start for the same key
	MaxRetryDelay time.Duration // if zero, two minutes
	Log           *slog.Logger
}

// Queue processes keys. A key that is added several times before it is processed is processed once. It is never processed
// twice at the same time.
type Queue struct {
	cfg     Config
	queue   workqueue.TypedRateLimitingInterface[string]
	limiter *rate.Limiter

	mu           sync.Mutex
	pausedUntil  time.Time
	outageLogged bool
	logged       logonce.Last[string] // by key
	notBefore    map[string]time.Time // key → earliest next start; expired entries are removed by finish
	swept        time.Time
}

// NewQueue returns a Queue that processes keys while Run runs.
func NewQueue(cfg Config) *Queue {
	if cfg.MaxRetryDelay == 0 {
		cfg.MaxRetryDelay = maxRetryDelay
	}
	limit := rate.Inf
	if cfg.Interval > 0 {
		limit = rate.Every(cfg.Interval)
	}
	return &Queue{cfg: cfg, limiter: rate.NewLimiter(limit, cfg.Burst), notBefore: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](MinRetryDelay, cfg.MaxRetryDelay))}
}

// Add requests that a key is processed. It does not block.
func (q *Queue) Add(key string) { q.queue.Add(key) }

// Run processes keys until ctx ends.
func (q *Queue) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range q.cfg.Parallel {
		workers.Go(func() {
			for {
				key, shutdown := q.queue.Get()
				if shutdown {
					return
				}
				q.process(ctx, key)
			}
		})
	}
	workers.Wait()
	return nil
}

func (q *Queue) process(ctx context.Context, key string) {
	defer q.queue.Done(key)
	if wait := q.untilNextStart(key); wait > 0 {
		q.queue.AddAfter(key, wait)
		return
	}
	if q.limiter.Wait(ctx) != nil || !q.waitForPause(ctx) {
		return // ctx ended
	}
	limited, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	q.finish(ctx, key, q.cfg.Do(limited, key))
}

func (q *Queue) untilNextStart(key string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Until(q.notBefore[key])
}

func (q *Queue) waitForPause(ctx context.Context) bool {
	for {
		q.mu.Lock()
		pause := time.Until(q.pausedUntil)
		q.mu.Unlock()
		if pause <= 0 {
			return true
		}
		if !backoff.Sleep(ctx, pause) {
			return false
		}
	}
}

func (q *Queue) finish(ctx context.Context, key string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Sub(q.swept) > time.Minute {
		q.swept = now
		maps.DeleteFunc(q.notBefore, func(_ string, at time.Time) bool { return at.Before(now) })
	}
	if err == nil {
		q.outageLogged = false
		q.logged.Reset(key)
		q.queue.Forget(key)
		if q.cfg.MinInterval > 0 {
			q.notBefore[key] = now.Add(q.cfg.MinInterval)
		}
		return
	}
	q.notBefore[key] = now.Add(max(MinRetryDelay, q.cfg.MinInterval))
	q.queue.AddRateLimited(key)
	retryAfter, outage := kube.ServerUnavailable(err)
	if outage { // affects all keys
		q.pausedUntil = now.Add(max(outagePause, min(retryAfter, taskTimeout)))
	}
	if ctx.Err() == nil && !(outage && q.outageLogged) && q.logged.Changed(key, err.Error()) {
		q.outageLogged = outage
		q.cfg.Log.WarnContext(ctx, "Failed to run task, retrying", "task", q.cfg.Name, "key", key, "error", err)
	}
}
