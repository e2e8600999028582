package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// mood is how an API server takes writes, by all that a client writes there: not
// only what its node wants, of which there may be nothing for hours.
type mood struct {
	mu      sync.Mutex
	since   time.Time // the first refusal of a trouble; zero: there is none
	last    time.Time // refusal
	refused bool      // the last write was
	why     string    // the last refusal
}

// A trouble is worth telling when it has lasted for so long, and over when a write
// went through and none was refused for so long: while some get through and some
// do not, it is one trouble.
const (
	worthTelling = 5 * time.Second
	calmAgain    = 30 * time.Second
)

// learn takes note of how a write went.
func (m *mood) learn(ctx context.Context, method, address string, err error) {
	if method == http.MethodGet || strings.Contains(address, "/apis/auth") || errors.Is(ctx.Err(), context.Canceled) {
		return // reviews of tokens and rights are questions
	}
	now := time.Now()
	_, trouble := Trouble(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if trouble {
		if m.over(now) {
			m.since = now
		}
		m.last = now
		if why := brief(err.Error()); withoutDigits(why) != withoutDigits(m.why) { // ports and the like are no news
			m.why = why
		}
	}
	m.refused = trouble
}

// longestWhy bounds a reason: it is told in a line, to a hub that listens to no
// long ones, and what an API server says may be a page.
const longestWhy = 1000

func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestWhy {
		text = strings.ToValidUTF8(text[:longestWhy], "") + "..."
	}
	return text
}

// over tells whether there is no trouble, or none any more. Under mu.
func (m *mood) over(now time.Time) bool {
	return m.since.IsZero() || !m.refused && now.Sub(m.last) >= calmAgain
}

// Complaint says in a sentence that the API server has not taken writes for a
// while, since when, and why; empty: it takes them, as far as anybody has tried.
// The sentence is the same for as long as the reason is.
func (c *Client) Complaint() string {
	m, now := &c.mood, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	lasted := m.last.Sub(m.since)
	if m.refused {
		lasted = now.Sub(m.since)
	}
	if m.over(now) || lasted < worthTelling {
		return ""
	}
	return fmt.Sprintf("since %s the API server can not take writes: %s", m.since.UTC().Format(time.RFC3339), m.why)
}

// Writable returns the complaint, if there is one, as an error.
func (c *Client) Writable() error {
	if complaint := c.Complaint(); complaint != "" {
		return errors.New(complaint)
	}
	return nil
}
