package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// ending is an early end of a watch.
type ending struct {
	expired bool  // send an ERROR event with 410 first
	err     error // error at the end of the stream
}

var (
	endOrderly = ending{err: io.EOF}
	endCut     = ending{err: errors.New("the watch was cut")}
	endExpired = ending{expired: true, err: io.EOF}
)

// CutWatches breaks matching open watches, as a lost connection does, and returns their number.
func (a *API) CutWatches(m Match) int { return a.endWatches(m, endCut) }

// EndWatches ends matching open watches in order, as the API server does after some minutes, and returns their number.
func (a *API) EndWatches(m Match) int { return a.endWatches(m, endOrderly) }

// ExpireWatches ends matching open watches with an ERROR event with status 410 Gone, and returns their number.
func (a *API) ExpireWatches(m Match) int { return a.endWatches(m, endExpired) }

// OpenWatches returns the number of matching open watches.
func (a *API) OpenWatches(m Match) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.watches {
		if m.matches(r) {
			n++
		}
	}
	return n
}

func (a *API) endWatches(m Match, how ending) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for w, r := range a.watches {
		if m.matches(r) {
			delete(a.watches, w) // end it only once
			w.end <- how
			n++
		}
	}
	return n
}

// modifyResponse replaces the body of a watch.
func (a *API) modifyResponse(resp *http.Response) error {
	k, ok := resp.Request.Context().Value(requestKey{}).(known)
	if !ok || k.Verb != "watch" || resp.StatusCode != http.StatusOK {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type of a watch: %w", err)
	}
	f, ok := framings[mediaType]
	if !ok {
		return fmt.Errorf("a watch in %s is not supported: use JSON or protobuf", mediaType)
	}
	w := &watchBody{
		api: a, upstream: resp.Body, framing: f, action: k.watch,
		frames: make(chan frame), end: make(chan ending, 1), done: make(chan struct{}),
	}
	resp.Body = w
	a.mu.Lock()
	a.watches[w] = k.Request
	a.notify()
	a.mu.Unlock()
	a.work.Go(w.pump) // the calling request is still running, so Close waits for it
	return nil
}

// watchBody is the stream of a watch, split into events, so that it can end between two of them.
type watchBody struct {
	api      *API
	upstream io.ReadCloser
	framing  framing
	action   *Action     // ending of a rule, or nil
	frames   chan frame  // from pump to Read
	end      chan ending // ending from a caller
	once     sync.Once
	done     chan struct{} // closed by Close

	// Used by the reader only.
	rest []byte
	read int // number of returned events
	err  error
}

// frame is one event, or a part of one if the stream broke.
type frame struct {
	data []byte
	err  error
}

func (w *watchBody) pump() {
	r := bufio.NewReader(w.upstream)
	for {
		data, err := w.framing.next(r)
		select {
		case w.frames <- frame{data: data, err: err}:
		case <-w.done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (w *watchBody) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		if w.action != nil && w.read >= w.action.events {
			w.finish(*w.action.watch)
			continue
		}
		select {
		case how := <-w.end:
			w.finish(how)
		case f := <-w.frames:
			w.rest, w.err = f.data, f.err
			w.read++
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *watchBody) finish(how ending) {
	if w.err = how.err; how.expired {
		w.rest = w.framing.expired
	}
}

func (w *watchBody) Close() error {
	w.once.Do(func() {
		close(w.done)
		w.api.mu.Lock()
		defer w.api.mu.Unlock()
		delete(w.api.watches, w)
	})
	return w.upstream.Close()
}

// framing is the encoding of a stream of events.
type framing struct {
	next    func(*bufio.Reader) ([]byte, error)
	expired []byte // ERROR event with 410
}

var framings = map[string]framing{
	"application/json": {
		next:    func(r *bufio.Reader) ([]byte, error) { return r.ReadBytes('\n') },
		expired: expiredJSON(),
	},
	"application/vnd.kubernetes.protobuf": {next: nextProtobuf, expired: expiredProtobuf()},
}

// nextProtobuf reads an event with a length prefix of four bytes.
func nextProtobuf(r *bufio.Reader) ([]byte, error) {
	var event bytes.Buffer
	if _, err := io.CopyN(&event, r, 4); err != nil {
		return event.Bytes(), err
	}
	size := binary.BigEndian.Uint32(event.Bytes())
	_, err := io.CopyN(&event, r, int64(size))
	return event.Bytes(), err
}

func expiredJSON() []byte {
	data, err := json.Marshal(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Object: new(expired())}})
	if err != nil {
		panic(err) // constant input
	}
	return append(data, '\n')
}

func expiredProtobuf() []byte {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(new(expired()), &object); err != nil {
		panic(err) // constant input
	}
	event := metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object.Bytes()}}
	data, err := event.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}
