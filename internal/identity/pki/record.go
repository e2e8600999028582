package pki

import (
	"slices"
	"strings"
	"time"
)

// Record lists the certificates that were issued to an agent or for its cluster, oldest first. It is an annotation of the
// Agent, so that the deletion of the Agent revokes them all.
type Record []RecordEntry

// RecordEntry is one certificate of a Record.
type RecordEntry struct {
	Fingerprint string    // 64 upper-case hexadecimal digits
	Expires     time.Time // zero if unknown
}

// Limits of a Record.
const (
	// MaxIssued is the number of valid certificates of an agent. Normally it has two or three.
	MaxIssued = 64
	// MaxProxyClients is the number of recorded certificates for the cluster of an agent. Older ones are also revoked when
	// the Agent is deleted, by their age.
	MaxProxyClients = 128
)

// ParseRecord parses a Record. It skips entries that are invalid, which a user has written.
func ParseRecord(text string) (r Record) {
	for entry := range strings.FieldsSeq(text) {
		fingerprint, expiry, _ := strings.Cut(entry, "/")
		if len(fingerprint) != 64 || strings.Trim(fingerprint, "0123456789ABCDEF") != "" {
			continue
		}
		expires, _ := time.Parse(time.RFC3339, expiry)
		r = append(r, RecordEntry{Fingerprint: fingerprint, Expires: expires})
	}
	return r
}

// String returns the Record as text for ParseRecord.
func (r Record) String() string {
	var entries []string
	for _, e := range r {
		text := e.Fingerprint
		if !e.Expires.IsZero() {
			text += "/" + e.Expires.UTC().Format(time.RFC3339)
		}
		entries = append(entries, text)
	}
	return strings.Join(entries, " ")
}

// Valid returns the entries of certificates that have not expired.
func (r Record) Valid(now time.Time) Record {
	return slices.DeleteFunc(slices.Clone(r), func(e RecordEntry) bool { return !e.Expires.IsZero() && !now.Before(e.Expires) })
}

// Contains reports whether a certificate is in the Record.
func (r Record) Contains(fingerprint string) bool {
	return slices.ContainsFunc(r, func(e RecordEntry) bool { return e.Fingerprint == fingerprint })
}

// LastExpiry returns when the last certificate of the Record expires, or zero.
func (r Record) LastExpiry() (last time.Time) {
	for _, e := range r {
		if e.Expires.After(last) {
			last = e.Expires
		}
	}
	return last
}

// Newest returns at most n entries.
func (r Record) Newest(n int) Record { return r[max(0, len(r)-n):] }

// EntryOf returns the entry of the first certificate of a PEM chain.
func EntryOf(chain []byte) (RecordEntry, error) {
	certs, err := Certificates(chain)
	if err != nil {
		return RecordEntry{}, err
	}
	return RecordEntry{Fingerprint: Describe(certs[0]).Fingerprint, Expires: certs[0].NotAfter}, nil
}
