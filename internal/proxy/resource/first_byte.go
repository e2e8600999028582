package resource

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var errFirstByte = errors.New("no answer in time")

// firstByteTransport gives up on a request to which no answer begins in time. Time runs from the last byte of the request that went
// out, so that a large body on a slow line is no reason. Once an answer has begun it may take any time.
type firstByteTransport struct{ next http.RoundTripper }

func (p *firstByteTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil { // given up on before it was sent
		return nil, err
	}
	c := callOf(r.Context())
	if c == nil || c.patience == 0 {
		return p.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	watch := &stopwatch{limit: c.patience}
	watch.timer = time.AfterFunc(c.patience, func() {
		cancel(errFirstByte)
		c.unblock()
	})
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &timedBody{ReadCloser: r.Body, watch: watch, ctx: ctx, call: c}
	}
	res, err := p.next.RoundTrip(r)
	if expired := watch.stop(); expired || err != nil {
		cause := context.Cause(ctx)
		cancel(nil)
		if err == nil {
			_ = res.Body.Close()
			err = errFirstByte
		}
		if errors.Is(cause, errFirstByte) {
			err = errFirstByte
		}
		return nil, err
	}
	res.Body = &endingBody{ReadCloser: res.Body, end: func() { cancel(nil) }}
	return res, nil
}

// stopwatch is a timer that progress restarts, until it is stopped for good.
type stopwatch struct {
	mu      sync.Mutex
	timer   *time.Timer
	limit   time.Duration
	stopped bool
}

func (s *stopwatch) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped && s.timer.Stop() {
		s.timer.Reset(s.limit)
	}
}

// stop reports whether the time had run out.
func (s *stopwatch) stop() (expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return !s.timer.Stop()
}

// timedBody is the body of a caller's request. The transport does not return before a read of it has, even when there is
// nobody left to read for: so whoever ends the request ends the read too, with call.unblock.
type timedBody struct {
	io.ReadCloser
	watch *stopwatch
	ctx   context.Context
	call  *hubRequest
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.call.reading.Store(true)
	defer b.call.reading.Store(false)
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.restart()
	}
	return n, err
}

// endingBody tells when nobody reads on.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
