package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Log.
type Config struct {
	// Target is a file, or - for Stdout, or otlp for a collector.
	Target string
	Stdout io.Writer
	Side   Side
	Log    *slog.Logger

	Collector Collector // for target otlp

	Queue int // lines that wait to be written: 4096
}

// TargetOTLP is the Target for a collector.
const TargetOTLP = "otlp"

const (
	batchSize    = 256
	closeTimeout = 3 * time.Second
)

// sink writes records. It is used by one goroutine.
type sink interface {
	// write returns how many records were written, and why the others were not.
	write(ctx context.Context, records []Record) (int, error)
	close(ctx context.Context)
}

// Log writes records. If nil, it writes nothing.
type Log struct {
	side  Side
	log   *slog.Logger
	sink  sink
	agent atomic.Pointer[string]
	queue chan Record
	done  chan struct{} // closed when the goroutine has ended

	life context.Context // of writes; ended by Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	queued map[string]int // lines in the queue, by agent
	lost   lossByAgent

	written, full, failed atomic.Uint64
	lossReported          atomic.Bool // until a line is written again
}

// Open returns a Log, which the caller must close. It returns nil if there is no target.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	var to sink
	var err error
	switch cfg.Target {
	case "":
		return nil, nil
	case "-":
		to = &stream{w: cfg.Stdout}
	case TargetOTLP:
		to, err = newExport(ctx, cfg.Collector)
	default:
		to, err = newFile(cfg.Target)
	}
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return start(cfg, to), nil
}

func start(cfg Config, to sink) *Log {
	l := &Log{side: cfg.Side, log: cfg.Log, sink: to, queue: make(chan Record, cmp.Or(cfg.Queue, 4096)), done: make(chan struct{}),
		queued: map[string]int{}}
	l.life, l.end = context.WithCancel(context.Background())
	go l.run()
	return l
}

// SetAgent sets the agent of this process, which it learns from the hub, for all records without one.
func (l *Log) SetAgent(name string) {
	if l != nil {
		l.agent.Store(&name)
	}
}

// Write queues a record. It never waits. If the queue or the agent's share of it is full, the record is lost.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	r.Time, r.Side = time.Now().UTC(), l.side
	r.Caller = cmp.Or(r.Caller, UnknownCaller)
	if agent := l.agent.Load(); agent != nil && r.Agent == "" {
		r.Agent = *agent
	}
	r = r.bounded()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		l.full.Add(1)
	case len(l.queue) == cap(l.queue):
		l.lose(r.Agent, "the queue is full")
	case l.side == Hub && len(l.queue) >= cap(l.queue)/2 && l.queued[r.Agent] >= cap(l.queue)/shares:
		l.lose(r.Agent, "the queue is half full, and the agent has its share of it")
	default:
		l.queue <- r // has room, because only Write adds to it
		l.queued[r.Agent]++
	}
}

// shares is the number of agents that can have lines in the upper half of the queue, if each has as many as possible.
const shares = 16

// lose counts a lost line. The caller must hold l.mu.
func (l *Log) lose(agent, why string) {
	l.full.Add(1)
	l.lost.add(agent)
	l.reportLoss(why)
}

// taken records that lines have left the queue. It returns the lines about losses that are due.
func (l *Log) taken(batch []Record) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range batch {
		if l.queued[r.Agent]--; l.queued[r.Agent] <= 0 {
			delete(l.queued, r.Agent)
		}
	}
	return l.lost.report(l.side)
}

// Close writes queued records within a few seconds.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	timeout := time.AfterFunc(closeTimeout, l.end)
	defer timeout.Stop()
	select {
	case <-l.done:
	case <-l.life.Done(): // a write to a file or pipe may block forever
		select {
		case <-l.done:
		default:
			l.reportLoss("not written before the process ended")
		}
	}
	l.end()
}

// Counts are totals of records.
type Counts struct {
	Written uint64
	Full    uint64 // lost because the queue was full
	Failed  uint64 // lost because they could not be written

	LostByAgent map[string]uint64 // only agents that lost lines
}

// Counts returns how many records were written and lost. It returns false if there is no audit log.
func (l *Log) Counts() (Counts, bool) {
	if l == nil {
		return Counts{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return Counts{Written: l.written.Load(), Full: l.full.Load(), Failed: l.failed.Load(), LostByAgent: maps.Clone(l.lost.total)}, true
}

func (l *Log) run() {
	defer close(l.done)
	batch := make([]Record, 0, batchSize)
	for r := range l.queue {
		batch = append(batch[:0], r)
		for len(batch) < batchSize && len(l.queue) > 0 {
			more, ok := <-l.queue
			if !ok {
				break
			}
			batch = append(batch, more)
		}
		l.write(append(batch, l.taken(batch)...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	l.sink.close(ctx)
}

func (l *Log) write(batch []Record) {
	n, err := l.sink.write(l.life, batch)
	l.written.Add(uint64(n))
	if err != nil {
		l.mu.Lock()
		for _, r := range batch[n:] {
			if r.Type != Loss {
				l.failed.Add(1)
			}
			l.lost.failed(r)
		}
		l.mu.Unlock()
		l.reportLoss(err.Error())
		return
	}
	if l.lossReported.Swap(false) {
		l.log.Info("Audit log is written again", "lost", l.full.Load()+l.failed.Load())
	}
}

// reportLoss logs once that lines are lost, until a line is written again.
func (l *Log) reportLoss(why string) {
	if !l.lossReported.Swap(true) {
		l.log.Error("Failed to write audit log, lines are lost", "reason", why)
	}
}
