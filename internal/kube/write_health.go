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

// writeHealth is how an API server takes writes, by all that a client writes there: not
// only what its node wants, of which there may be nothing for hours.
type writeHealth struct {
	mu      sync.Mutex
	since   time.Time // the first refusal of a trouble; zero: there is none
	lastFailure    time.Time // refusal
	failing bool      // the last write was
	reason     string    // the last refusal
}

// A trouble is worth telling when it has lasted for so long, and over when a write
// went through and none was refused for so long: while some get through and some
// do not, it is one trouble.
const (
	reportAfter    = 5 * time.Second
	recoveryPeriod = 30 * time.Second
)

// recordResult takes note of how a write went.
func (m *writeHealth) recordResult(ctx context.Context, method, address string, err error) {
	if method == http.MethodGet || strings.Contains(address, "/apis/auth") || errors.Is(ctx.Err(), context.Canceled) {
		return // reviews of tokens and rights are questions
	}
	now := time.Now()
	_, trouble := ServerUnavailable(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if trouble {
		if m.recovered(now) {
			m.since = now
		}
		m.lastFailure = now
		if why := truncateReason(err.Error()); normalizeReason(why) != normalizeReason(m.reason) { // ports and the like are no news
			m.reason = why
		}
	}
	m.failing = trouble
}

// maxReasonLen bounds a reason: it is told in a line, to a hub that listens to no
// long ones, and what an API server says may be a page.
const maxReasonLen = 1000

func truncateReason(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReasonLen {
		text = strings.ToValidUTF8(text[:maxReasonLen], "") + "..."
	}
	return text
}

// recovered reports whether there is no trouble, or none any more. Under mu.
func (m *writeHealth) recovered(now time.Time) bool {
	return m.since.IsZero() || !m.failing && now.Sub(m.lastFailure) >= recoveryPeriod
}

// WriteOutage says in a sentence that the API server has not taken writes for a
// while, since when, and why; empty: it takes them, as far as anybody has tried.
// The sentence is the same for as long as the reason is.
func (c *Client) WriteOutage() string {
	m, now := &c.writes, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	lasted := m.lastFailure.Sub(m.since)
	if m.failing {
		lasted = now.Sub(m.since)
	}
	if m.recovered(now) || lasted < reportAfter {
		return ""
	}
	return fmt.Sprintf("since %s the API server cannot take writes: %s", m.since.UTC().Format(time.RFC3339), m.reason)
}

// CheckWritable returns the complaint, if there is one, as an error.
func (c *Client) CheckWritable() error {
	if complaint := c.WriteOutage(); complaint != "" {
		return errors.New(complaint)
	}
	return nil
}
