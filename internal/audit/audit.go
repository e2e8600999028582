// Package audit writes one JSON line for each action that a user takes through the hub: a command, a live write, an exec
// session, a confirmation, a refusal.
//
// Lines have names of objects and users, but no content of objects and no bodies of requests. A nil Log writes nothing.
//
// A Log never blocks its callers. It has a bounded queue and one goroutine that writes. Lines that it cannot write are
// lost, counted, and reported once in the log of the process. On the hub, one agent cannot fill the queue: if it is half
// full, each agent has a small share. Lost lines are counted by agent, and the audit log has a line about them.
package audit

import (
	"encoding/json"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Side is the cluster whose component writes a line.
type Side string

// Sides.
const (
	Hub   Side = "hub"
	Spoke Side = "spoke"
)

// Type is the kind of an action.
type Type string

// Types.
const (
	Command      Type = "command"      // given on the hub, executed on the workload cluster
	Live         Type = "live"         // a request through the resource proxy
	Exec         Type = "exec"         // an exec session, or another connection into a pod
	Confirmation Type = "confirmation" // of held deletions
	Replication  Type = "replication"  // an object of the hub that the workload cluster refuses
	Loss         Type = "loss"         // of lines of an agent
)

// Result is how an action ended.
type Result string

// Results.
const (
	OK      Result = "ok"
	Refused Result = "refused" // a setting or policy forbids it
	Failed  Result = "failed"
	Unknown Result = "unknown" // the connection ended before the result was known
	Begun   Result = "begun"   // of an exec session
)

// UnknownCaller is the caller of an action whose user is not known.
const UnknownCaller = "unknown"

// Object is the object of an action.
type Object struct {
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource,omitempty"` // plural, as in paths
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
}

// Record is one line.
type Record struct {
	Time         time.Time `json:"time"` // set by Write
	Side         Side      `json:"side"` // set by Write
	Agent        string    `json:"agent,omitempty"`
	Type         Type      `json:"type"`
	Action       string    `json:"action"`               // such as sync or patch
	Caller       string    `json:"caller"`               // if empty, UnknownCaller
	CallerFrom   string    `json:"callerFrom,omitempty"` // what names the caller
	Impersonates string    `json:"impersonates,omitempty"`
	Object       Object    `json:"object"`
	Application  string    `json:"application,omitempty"` // on whose behalf a live request is permitted
	Result       Result    `json:"result"`
	Code         string    `json:"code,omitempty"`
	Setting      string    `json:"setting,omitempty"` // that forbids it
	Reason       string    `json:"reason,omitempty"`
	RequestID    string    `json:"requestID,omitempty"` // the same on both sides

	lost uint64 // of type Loss: the number of lines
}

const (
	maxNameLen   = 256
	maxReasonLen = 1024
)

// bounded returns the record with bounded texts of valid UTF-8.
func (r Record) bounded() Record {
	for _, s := range []*string{&r.Agent, &r.Action, &r.Caller, &r.CallerFrom, &r.Impersonates, &r.Object.Group, &r.Object.Resource,
		&r.Object.Subresource, &r.Object.Namespace, &r.Object.Name, &r.Application, &r.Code, &r.Setting, &r.RequestID} {
		*s = text.Truncate(*s, maxNameLen)
	}
	r.Reason = text.Truncate(r.Reason, maxReasonLen)
	return r
}

// line returns the record as a line of JSON. Newlines in texts are escaped.
func (r Record) line() []byte {
	b, err := json.Marshal(r)
	if err != nil { // texts and a time
		panic(err)
	}
	return append(b, '\n')
}
