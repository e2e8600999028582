package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
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

	mu     sync.RWMutex // guards closed against Write
	closed bool

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
	l := &Log{side: cfg.Side, log: cfg.Log, sink: to, queue: make(chan Record, cmp.Or(cfg.Queue, 4096)), done: make(chan struct{})}
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

// Write queues a record. It never waits. If the queue is full, the record is lost.
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
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.full.Add(1)
		return
	}
	select {
	case l.queue <- r:
	default:
		l.full.Add(1)
		l.reportLoss("the queue is full")
	}
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
}

// Counts returns how many records were written and lost. It returns false if there is no audit log.
func (l *Log) Counts() (Counts, bool) {
	if l == nil {
		return Counts{}, false
	}
	return Counts{Written: l.written.Load(), Full: l.full.Load(), Failed: l.failed.Load()}, true
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
		l.write(batch)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	l.sink.close(ctx)
}

func (l *Log) write(batch []Record) {
	n, err := l.sink.write(l.life, batch)
	l.written.Add(uint64(n))
	if err != nil {
		l.failed.Add(uint64(len(batch) - n))
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
