package revoke

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// Parts of the note of an entry for a deleted agent.
const (
	entryPrefix  = "agent "
	entryDeleted = " was deleted on "
	entryJoined  = " had to join again on "
	entryExpires = "; the certificate expires on "
)

// entryGrace is how long an entry stays after its certificate expired, because clocks can differ.
const entryGrace = 24 * time.Hour

// clockTolerance is how far clocks may differ.
const clockTolerance = 5 * time.Minute

// deletedAgentPrefix starts the key of the entry for a deleted agent. It revokes all certificates of the agent, and those
// for its cluster, that were issued before it was deleted. They must not work for another agent with the same name. The
// agent cannot register itself again, whatever identity it has.
const deletedAgentPrefix = "proxy-clients."

// deletionPatch returns the change of a page when an agent was deleted. A nil value removes the entry.
func deletionPatch(listed map[string]string, agent string, revoked map[string]time.Time, now time.Time) map[string]any {
	deleted := entryPrefix + agent + entryDeleted + now.UTC().Format(time.RFC3339)
	data := revocationPatch(listed, deleted, revoked, now)
	data[deletedAgentPrefix+agent] = deleted + entryExpires + now.Add(pki.ProxyClientLifetime).UTC().Format(time.RFC3339)
	return data
}

// revocationPatch returns the change of a page that adds certificates with a note, and removes expired entries.
func revocationPatch(listed map[string]string, why string, revoked map[string]time.Time, now time.Time) map[string]any {
	data := expired(listed, now)
	for fingerprint, expires := range revoked {
		if _, exists := listed[fingerprint]; exists {
			continue
		}
		note := why
		if !expires.IsZero() {
			note += entryExpires + expires.UTC().Format(time.RFC3339)
		}
		data[fingerprint] = note
	}
	return data
}

// expired returns a change that removes the entries of expired certificates.
func expired(listed map[string]string, now time.Time) map[string]any {
	data := map[string]any{}
	for fingerprint, note := range listed {
		if entryExpired(note, now) {
			data[fingerprint] = nil
		}
	}
	return data
}

// deletedAgents removes the entries for deleted agents from listed. It returns the time before which certificates for
// each agent are revoked. Certificates of the last minutes before the deletion stay valid, because clocks can differ. The
// ones in use at that time have their own entries.
func deletedAgents(listed map[string]string) (map[string]time.Time, error) {
	before := map[string]time.Time{}
	var invalid []error
	for key, note := range listed {
		agent, ok := strings.CutPrefix(key, deletedAgentPrefix)
		if !ok {
			continue
		}
		delete(listed, key)
		at := deletedAt(note)
		if at.IsZero() {
			invalid = append(invalid, fmt.Errorf("entry %s has no deletion time, so older certificates are NOT revoked", key))
			continue
		}
		before[agent] = at.Add(-clockTolerance)
	}
	return before, errors.Join(invalid...)
}

// deletedAt returns the deletion time in a note, or zero.
func deletedAt(note string) time.Time {
	_, rest, _ := strings.Cut(note, entryDeleted)
	when, _, _ := strings.Cut(rest, entryExpires)
	at, _ := time.Parse(time.RFC3339, when)
	return at
}

func entryExpired(note string, now time.Time) bool {
	text, expiry, ours := strings.Cut(note, entryExpires)
	if !ours || !strings.HasPrefix(text, entryPrefix) {
		return false
	}
	expires, err := time.Parse(time.RFC3339, expiry)
	return err == nil && now.After(expires.Add(entryGrace))
}
