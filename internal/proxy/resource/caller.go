package resource

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// Caller is the client that sent a request to the hub, as far as the hub knows it.
type Caller struct {
	User   string   // if empty, the user is not known
	Groups []string // of the user
	From   string   // what names the caller, such as the type of its certificate
}

// The Hub adds the caller and the ID of a request to its headers. A Hub of any release removes headers with these names
// from the requests of its clients (identityPrefixes), so a client cannot set them. Only the principal can open a tunnel, so
// the Agent knows that a Hub has set them. Values are escaped, because user names can have any character.
const (
	userHeader  = "X-Remote-User"
	groupHeader = "X-Remote-Group"
	fromHeader  = "X-Remote-Extra-From"
	idHeader    = "X-Remote-Extra-Request-Id"

	// auditIDHeader sets the ID of the request in the audit log of an API server.
	auditIDHeader = "Audit-Id"
)

// Bounds of what an Agent accepts.
const (
	maxUserLen    = 256
	maxUserGroups = 64
)

func newRequestID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// setCaller adds a caller and a request ID to the headers for the Agent.
func setCaller(header http.Header, c Caller, id string) {
	header.Set(idHeader, id)
	if c.From != "" {
		header.Set(fromHeader, url.QueryEscape(c.From))
	}
	if c.User == "" {
		return
	}
	header.Set(userHeader, url.QueryEscape(c.User))
	for _, group := range c.Groups {
		header.Add(groupHeader, url.QueryEscape(group))
	}
}

// readCaller returns the caller and the request ID that the Hub has set. A Hub of an older release sets none: then the
// caller is not known, and the ID is new.
func readCaller(header http.Header) (Caller, string) {
	id := header.Get(idHeader)
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		id = newRequestID()
	}
	text := func(escaped string) (string, bool) {
		s, err := url.QueryUnescape(escaped)
		return s, err == nil && s != "" && len(s) <= maxUserLen
	}
	var c Caller
	c.From, _ = text(header.Get(fromHeader))
	user, ok := text(header.Get(userHeader))
	groups := header.Values(groupHeader)
	if !ok || len(groups) > maxUserGroups {
		return c, id
	}
	for _, escaped := range groups {
		group, ok := text(escaped)
		if !ok { // all groups or none: rights may depend on them
			return c, id
		}
		c.Groups = append(c.Groups, group)
	}
	c.User = user
	return c, id
}
