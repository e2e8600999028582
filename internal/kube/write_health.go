package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// writeHealth records whether the API server accepts the writes of a client. It covers all writes of the client, because
// the reconcile core may write nothing for hours.
type writeHealth struct {
	mu          sync.Mutex
	since       time.Time // first failure of the outage; zero if there is no outage
	lastFailure time.Time
	failing     bool // the last write failed
	reason      string
}

// An outage is reported after reportAfter. It ends if a write succeeded and none failed for recoveryPeriod, so that a
// server that accepts only some writes has one outage.
const (
	reportAfter    = 5 * time.Second
	recoveryPeriod = 30 * time.Second
)

func (m *writeHealth) recordResult(ctx context.Context, method, address string, err error) {
	if method == http.MethodGet || strings.Contains(address, "/apis/auth") || errors.Is(ctx.Err(), context.Canceled) {
		return // token and access reviews store nothing
	}
	now := time.Now()
	_, unavailable := ServerUnavailable(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if unavailable {
		if m.recovered(now) {
			m.since = now
		}
		m.lastFailure = now
		reason := text.Truncate(strings.Join(strings.Fields(err.Error()), " "), maxReasonLen)
		if text.WithoutDigits(reason) != text.WithoutDigits(m.reason) {
			m.reason = reason
		}
	}
	m.failing = unavailable
}

// maxReasonLen bounds the reason. The agent sends it to the hub in one line.
const maxReasonLen = 1000

// recovered reports whether the API server accepts writes again. The caller must hold m.mu.
func (m *writeHealth) recovered(now time.Time) bool {
	return m.since.IsZero() || !m.failing && now.Sub(m.lastFailure) >= recoveryPeriod
}

// WriteOutage describes a write outage in one sentence. It returns "" if there is none. The sentence changes only if
// the reason changes.
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
	return fmt.Sprintf("API server has not accepted writes since %s: %s", m.since.UTC().Format(time.RFC3339), m.reason)
}

// CheckWritable returns the write outage, if there is one, as an error.
func (c *Client) CheckWritable() error {
	if outage := c.WriteOutage(); outage != "" {
		return errors.New(outage)
	}
	return nil
}
