package pki

import (
	"crypto/sha256"
	"crypto/x509"
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
	Joined     bool   // a user permitted it, with a join token or the CLI; false if an earlier release recorded it

	Issued time.Time // zero if unknown
	Hub    uint64    // generation of the promoted hub that recorded it; 0 if the hub was not promoted, or is not known
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
		fields := append(strings.Split(entry, "/"), "", "", "", "", "", "")
		e := RecordEntry{Fingerprint: fields[0], Key: fields[3], KeyStored: fields[4] == keyStored, Joined: fields[4] == joined}
		if len(e.Fingerprint) != 64 || strings.Trim(e.Fingerprint, "0123456789ABCDEF") != "" {
			continue
		}
		e.Expires, _ = time.Parse(time.RFC3339, fields[1])
		e.Generation, _ = strconv.ParseUint(fields[2], 10, 63)
		e.Issued, _ = time.Parse(time.RFC3339, fields[5])
		e.Hub, _ = strconv.ParseUint(fields[6], 10, 63)
		r = append(r, e)
	}
	return r
}

// Values of the field for KeyStored and Joined. They exclude each other.
const (
	keyStored = "stored"
	joined    = "joined"
)

// String returns the Record as text for ParseRecord.
func (r Record) String() string {
	var entries []string
	for _, e := range r {
		fields := []string{e.Fingerprint, "", strconv.FormatUint(e.Generation, 10), e.Key, "", "", ""}
		if !e.Expires.IsZero() {
			fields[1] = e.Expires.UTC().Format(time.RFC3339)
		}
		switch {
		case e.KeyStored:
			fields[4] = keyStored
		case e.Joined:
			fields[4] = joined
		}
		if !e.Issued.IsZero() {
			fields[5] = e.Issued.UTC().Format(time.RFC3339)
		}
		if e.Hub > 0 {
			fields[6] = strconv.FormatUint(e.Hub, 10)
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
	e.Generation, e.KeyStored, e.Joined = r.lastGeneration()+1, false, true
	return append(r, e)
}

// Renewed returns the Record with a certificate that an agent requested with the certificate of its connection. That must be
// one of the last generation. A request with the key of the last generation is repeated, because its answer was lost: it
// gets another certificate of the same generation. It returns a *ReusedError if an older generation was used with another
// key, because the agent no longer has it. The Hub of e is the generation of this hub if it was promoted.
func (r Record) Renewed(with, e RecordEntry) (Record, error) {
	last := r.lastGeneration()
	newest := slices.DeleteFunc(slices.Clone(r), func(e RecordEntry) bool { return e.Generation != last })
	used := slices.IndexFunc(r, func(e RecordEntry) bool { return e.Fingerprint == with.Fingerprint })
	stored := func(e RecordEntry) bool { return e.KeyStored }
	switch {
	case last > 0 && slices.ContainsFunc(newest, func(n RecordEntry) bool { return n.Key == e.Key }):
		e.Generation = last
	case last == 0 || newest.Contains(with.Fingerprint):
		e.Generation = last + 1
	case used < 0:
		next, reused := r.missed(with, e)
		if reused {
			return nil, &ReusedError{Last: last, Missed: true}
		}
		if !next {
			return nil, ErrNotRecorded
		}
		with.Generation, with.Hub, with.KeyStored = last+1, e.Hub, true // its client has it, so no older one is needed
		r, e.Generation = append(r, with), last+2
	case !slices.ContainsFunc(newest, stored), // the agent may have lost it
		r[used].Generation == 0 && r[used:].lastGeneration() < last: // a principal of an earlier release issued it later
		e.Generation = last + 1
	default:
		return nil, &ReusedError{Generation: r[used].Generation, Last: last}
	}
	e.KeyStored = e.KeyStored || slices.ContainsFunc(r, stored) // an agent does not become older
	return append(r, e), nil
}

// missed decides about a certificate that is not in the Record of a promoted hub, because the hub before it issued it and
// this hub has not received that. e is the requested one. Its Hub is 0 if this hub was not promoted. Issued of the certificate is
// set only if the CA of the hubs has signed it. The caller has checked that it is valid and for this agent.
//
// Whose key. The hub before this one issued the certificate to a client with a join token, or with the key of a certificate
// that was the newest one there. It did so after everything that this hub has received of it, so the certificate is later than
// all of these entries. A thief of a key that this hub knows as an older one got no certificate: that hub suspends an agent
// whose older key is used. Left are the agent, and a thief of the newest key that this hub knows or of a later one. This hub
// cannot distinguish them, so it does what a hub does that was not replaced:
//
//   - The first of them is the next generation. This hub must not have recorded a certificate of the agent since its promotion.
//   - If the other one renews later, two clients have the key of the agent. If its certificate is recorded, that is an older
//     generation. If not, it was issued before the first one was renewed here, with another key: reused.
//
// An agent of an earlier release does not store its keys. It repeats a request with another key, so its generations do not show
// whether another client has one of them. A thief can claim the same, so a request whose key is not stored is refused here. If a
// recorded certificate was renewed here with such a request, it is reused if the other client stores its keys.
//
// If it is not known when an entry was issued, because a principal of an earlier release recorded it, the certificate can be
// older than the entry, and is refused. So is one after a client has joined here: the agent may not have stored what it got.
func (r Record) missed(c, e RecordEntry) (next, reused bool) {
	if e.Hub == 0 || c.Issued.IsZero() {
		return false, false
	}
	next = e.KeyStored
	for _, known := range r {
		switch {
		case known.Hub >= e.Hub:
			next = false
			counts := known.KeyStored || e.KeyStored && !known.Joined
			reused = reused || counts && known.Key != c.Key && c.Issued.Before(known.Issued)
		case known.Issued.IsZero() || !known.Issued.Before(c.Issued):
			return false, false
		}
	}
	return next, reused
}

func (r Record) lastGeneration() (last uint64) {
	for _, e := range r {
		last = max(last, e.Generation)
	}
	return last
}

// ReusedError means that a certificate was used to renew after another client had renewed it: two clients have its key.
type ReusedError struct {
	Generation, Last uint64
	Missed           bool // the hub before this one issued it, and its generation is not known
}

func (e *ReusedError) Error() string {
	if e.Missed {
		return fmt.Sprintf("a certificate that the hub before this one issued was used after another client had renewed with another key (generation %d), so two clients have its key", e.Last)
	}
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
	return entryOf(certs[0]), nil
}

func entryOf(cert *x509.Certificate) RecordEntry {
	key := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return RecordEntry{Fingerprint: Describe(cert).Fingerprint, Expires: cert.NotAfter, Key: hex.EncodeToString(key[:12]), Issued: IssuedAt(cert)}
}
