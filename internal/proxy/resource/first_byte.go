package resource

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var errFirstByte = errors.New("no response in time")

// firstByteTransport cancels a request whose response does not begin in time. Time counts from the last byte of the
// request body that was sent, so that a large body may take long. The response body may take any time.
type firstByteTransport struct{ next http.RoundTripper }

func (p *firstByteTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil { // canceled before it was sent
		return nil, err
	}
	c := hubRequestFrom(r.Context())
	if c == nil || c.firstByteTimeout == 0 {
		return p.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	watch := &stopwatch{limit: c.firstByteTimeout}
	watch.timer = time.AfterFunc(c.firstByteTimeout, func() {
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

// stopwatch is a timer that progress restarts until it is stopped.
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

// stop stops the timer and reports whether it had expired.
func (s *stopwatch) stop() (expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return !s.timer.Stop()
}

// timedBody is the body of a caller's request. The transport returns only after a pending read of it. So hubRequest.unblock
// ends the read if the request is canceled.
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

// endingBody calls end when it is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
