// Package logonce decides whether a repeated message is worth another log line.
package logonce

import "sync"

// maxKeys bounds the number of remembered messages. If there are more, all are forgotten and some are logged again.
const maxKeys = 4096

// Last remembers the last message of each key. The zero value is ready to use. It is safe for concurrent use.
type Last[K comparable] struct {
	mu   sync.Mutex
	last map[K]string
}

// Changed records the message of a key. It reports whether the message differs from the one before.
func (l *Last[K]) Changed(key K, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.last[key]; ok && before == message {
		return false
	}
	if l.last == nil || len(l.last) >= maxKeys {
		l.last = map[K]string{}
	}
	l.last[key] = message
	return true
}

// Get returns the last message of a key, or "".
func (l *Last[K]) Get(key K) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[key]
}

// Reset forgets the message of a key and reports whether there was one.
func (l *Last[K]) Reset(key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.last[key]
	delete(l.last, key)
	return ok
}

// One remembers the last message of a single source. The zero value is ready to use. It is safe for concurrent use.
type One struct{ last Last[struct{}] }

// Changed records a message and reports whether it differs from the one before.
func (o *One) Changed(message string) bool { return o.last.Changed(struct{}{}, message) }

// Get returns the last message, or "".
func (o *One) Get() string { return o.last.Get(struct{}{}) }

// Reset forgets the last message and reports whether there was one.
func (o *One) Reset() bool { return o.last.Reset(struct{}{}) }
