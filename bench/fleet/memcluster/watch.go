package memcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bookmarkEvery is the interval of bookmarks in a watch without events.
const bookmarkEvery = time.Minute

// watch returns a response whose body continues until the watch ends.
func (c *Cluster) watch(r *http.Request, k key) (*http.Response, error) {
	query := r.URL.Query()
	from, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil {
		return answer(r, nil, refuse(400, "BadRequest", "resourceVersion: %v", err)), nil
	}
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil {
		seconds = 300
	}
	c.mu.Lock()
	forgotten := len(c.log) > 0 && c.log[0].revision > from+1
	c.mu.Unlock()
	if forgotten {
		return answer(r, nil, refuse(410, "Expired", "too old resource version: %d", from)), nil
	}
	return response(r, http.StatusOK, &stream{cluster: c, key: k, wanted: filter(query.Get("labelSelector"), query.Get("fieldSelector")),
		at: from, ctx: r.Context(), closed: make(chan struct{}), ends: time.Now().Add(time.Duration(seconds) * time.Second)}), nil
}

// stream is the body of a watch. Read waits for the next event. It uses no goroutine.
type stream struct {
	cluster *Cluster
	key     key
	wanted  func(*object) bool
	at      uint64 // newest revision that was read
	rest    []byte
	ctx     context.Context
	ends    time.Time
	close   sync.Once
	closed  chan struct{}
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		news, changed := s.news()
		if s.rest = news; len(news) > 0 {
			break
		}
		if !time.Now().Before(s.ends) {
			return 0, io.EOF
		}
		timer := time.NewTimer(min(time.Until(s.ends), bookmarkEvery))
		select {
		case <-changed:
		case <-timer.C:
			s.rest = s.bookmark()
		case <-s.closed:
			timer.Stop()
			return 0, io.ErrClosedPipe
		case <-s.ctx.Done():
			timer.Stop()
			return 0, s.ctx.Err()
		}
		timer.Stop()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// news returns the events since the last call. If there are none, it returns the channel to wait for.
func (s *stream) news() (out []byte, changed <-chan struct{}) {
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.log) > 0 && c.log[0].revision > s.at+1 {
		s.at = c.revision
		return []byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"the watch was too slow"}}` + "\n"), nil
	}
	for i := len(c.log) - int(c.revision-s.at); i < len(c.log); i++ {
		if i < 0 {
			continue
		}
		e := c.log[i]
		if e.object.resource != s.key.resource || s.key.namespace != "" && s.key.namespace != e.object.namespace || !s.wanted(e.object) {
			continue
		}
		out = fmt.Appendf(out, `{"type":%q,"object":`, e.kind)
		out = append(append(out, e.object.json...), "}\n"...)
	}
	s.at = c.revision
	return out, c.changed
}

func (s *stream) bookmark() []byte {
	return fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}`+"\n", s.at)
}

// Close ends the watch.
func (s *stream) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}
