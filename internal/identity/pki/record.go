package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

	// Only for certificates of agents.
	Generation uint64 // grows with each certificate; 0 if it is not counted
	Key        string // identifies its public key
	KeyStored  bool   // the agent stored the key before it requested the certificate, so it repeats a request with this key
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
		fields := append(strings.Split(entry, "/"), "", "", "", "")
		e := RecordEntry{Fingerprint: fields[0], Key: fields[3], KeyStored: fields[4] == keyStored}
		if len(e.Fingerprint) != 64 || strings.Trim(e.Fingerprint, "0123456789ABCDEF") != "" {
			continue
		}
		e.Expires, _ = time.Parse(time.RFC3339, fields[1])
		e.Generation, _ = strconv.ParseUint(fields[2], 10, 63)
		r = append(r, e)
	}
	return r
}

// keyStored is the last field of an entry whose KeyStored is set.
const keyStored = "stored"

// String returns the Record as text for ParseRecord.
func (r Record) String() string {
	var entries []string
	for _, e := range r {
		fields := []string{e.Fingerprint, "", strconv.FormatUint(e.Generation, 10), e.Key, ""}
		if !e.Expires.IsZero() {
			fields[1] = e.Expires.UTC().Format(time.RFC3339)
		}
		if e.KeyStored {
			fields[4] = keyStored
		}
		text := strings.Join(fields, "/")
		if e.Generation == 0 {
			text = fields[0] + "/" + fields[1]
		}
		entries = append(entries, strings.TrimRight(text, "/"))
	}
	return strings.Join(entries, " ")
}

// Joined returns the Record with a certificate that a user permitted, with a join token or the CLI. It begins the next
// generation. The agent may not have stored it, so the previous generation may be renewed as well.
func (r Record) Joined(e RecordEntry) Record {
	e.Generation, e.KeyStored = r.lastGeneration()+1, false
	return append(r, e)
}

// Renewed returns the Record with a certificate that an agent requested with the certificate of its connection. That must be
// one of the last generation. A request with the key of the last generation is repeated, because its answer was lost: it
// gets another certificate of the same generation. It returns a *ReusedError if an older generation was used with another
// key, because the agent no longer has it.
func (r Record) Renewed(with string, e RecordEntry) (Record, error) {
	last := r.lastGeneration()
	newest := slices.DeleteFunc(slices.Clone(r), func(e RecordEntry) bool { return e.Generation != last })
	used := slices.IndexFunc(r, func(e RecordEntry) bool { return e.Fingerprint == with })
	stored := func(e RecordEntry) bool { return e.KeyStored }
	switch {
	case last > 0 && slices.ContainsFunc(newest, func(n RecordEntry) bool { return n.Key == e.Key }):
		e.Generation = last
	case last == 0 || newest.Contains(with):
		e.Generation = last + 1
	case used < 0:
		return nil, ErrNotRecorded
	case !slices.ContainsFunc(newest, stored), // the agent may have lost it
		r[used].Generation == 0 && r[used:].lastGeneration() < last: // a principal of an earlier release issued it later
		e.Generation = last + 1
	default:
		return nil, &ReusedError{Generation: r[used].Generation, Last: last}
	}
	e.KeyStored = e.KeyStored || slices.ContainsFunc(r, stored) // an agent does not become older
	return append(r, e), nil
}

func (r Record) lastGeneration() (last uint64) {
	for _, e := range r {
		last = max(last, e.Generation)
	}
	return last
}

// ReusedError means that a certificate was used to renew after another client had renewed it: two clients have its key.
type ReusedError struct{ Generation, Last uint64 }

func (e *ReusedError) Error() string {
	return fmt.Sprintf("a certificate of generation %d was renewed again with another key after generation %d was issued, so two clients have its key", e.Generation, e.Last)
}

// ErrNotRecorded means that a certificate cannot be renewed because it is not in the Record.
var ErrNotRecorded = errors.New("the hub has no record of this certificate and does not renew it")

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
	key := sha256.Sum256(certs[0].RawSubjectPublicKeyInfo)
	return RecordEntry{Fingerprint: Describe(certs[0]).Fingerprint, Expires: certs[0].NotAfter, Key: hex.EncodeToString(key[:12])}, nil
}
