package kind

import (
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file converts the times of a spoke's operation to the clock of the hub, because controllers on the hub compare
// them with their own times. An ApplicationSet with RollingSync requests a sync and waits for an operation and a
// comparison that are later. If the spoke's clock is behind, it would wait as long as the difference, and request syncs
// in the meantime.
//
// The spoke's times are recorded in the operation, so that they are what is replicated and compared.

// minClockSkew is the smallest difference that is corrected. A measured one includes the network delay.
const minClockSkew = 2 * time.Second

// sameClock is the largest difference of two measurements that have the same cause.
const sameClock = 5 * time.Second

// hubTimes returns an operation state of the spoke with times of the hub's clock, and by how much the spoke's is ahead.
// before is the hub's state. An operation keeps the times that it got first.
func hubTimes(state, before []byte, skew time.Duration) ([]byte, time.Duration) {
	if skew > -minClockSkew && skew < minClockSkew {
		skew = 0
	}
	operation := rawjson.Get(state, "operation")
	started, err := time.Parse(time.RFC3339, rawjson.Text(state, "startedAt"))
	if err != nil || !isObject(operation) || infoValue(operation, RefusedInfo) != "" {
		return state, skew // there is none, or the hub made it
	}
	if info := rawjson.Get(operation, "info"); info != nil {
		if entries, err := rawjson.Elements(info); err != nil || len(entries) == 0 {
			return state, skew // it could not be restored exactly
		}
	}
	offset := skew
	if was, ok := offsetOf(before, started); ok {
		if offset = was; skew-was <= sameClock && was-skew <= sameClock {
			skew = was // otherwise the clock has been set
		}
	}
	if offset == 0 {
		return state, skew
	}
	s := members(state)
	finished := rawjson.Text(state, "finishedAt")
	s.Set("startedAt", rawjson.Quote(onHub(rawjson.Text(state, "startedAt"), offset)))
	if finished != "" {
		s.Set("finishedAt", rawjson.Quote(onHub(finished, offset)))
	}
	s.Set("operation", withInfo(operation, TimesInfo, rawjson.Text(state, "startedAt")+" "+finished))
	return s.Bytes(), skew
}

// offsetOf returns by how much the times of the hub's state were changed, if it is of the operation that started then.
func offsetOf(hub []byte, started time.Time) (time.Duration, bool) {
	recorded, _, ok := strings.Cut(infoValue(rawjson.Get(hub, "operation"), TimesInfo), " ")
	if !ok {
		at, err := time.Parse(time.RFC3339, rawjson.Text(hub, "startedAt"))
		return 0, err == nil && at.Equal(started)
	}
	original, err1 := time.Parse(time.RFC3339, recorded)
	shown, err2 := time.Parse(time.RFC3339, rawjson.Text(hub, "startedAt"))
	return started.Sub(shown), err1 == nil && err2 == nil && original.Equal(started)
}

// onHub returns a time of the spoke in the hub's clock. What is not a time stays.
func onHub(text string, ahead time.Duration) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || ahead == 0 {
		return text
	}
	return at.Add(-ahead).UTC().Format(time.RFC3339)
}

// spokeTimes returns an operation state of the hub with the spoke's times.
func spokeTimes(state []byte) []byte {
	operation := rawjson.Get(state, "operation")
	started, finished, ok := strings.Cut(infoValue(operation, TimesInfo), " ")
	if !ok {
		return state
	}
	s := members(state)
	s.Set("startedAt", rawjson.Quote(started))
	if finished != "" {
		s.Set("finishedAt", rawjson.Quote(finished))
	}
	s.Set("operation", withoutInfo(operation, TimesInfo))
	return s.Bytes()
}
