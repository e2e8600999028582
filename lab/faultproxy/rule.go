package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rule is a fault for the requests that match.
type Rule struct {
	Match
	// Do is what happens to them.
	Do Action
	// Times is how many requests it happens to; zero means all until the
	// fault is removed.
	Times int
	// Skip lets that many matching requests pass first.
	Skip int
}

// Action is what happens to a request that a rule matches.
type Action struct {
	answer func(Request) metav1.Status // answers instead of the API server
	delay  time.Duration               // waits before the request goes on
	hold   bool                        // waits until the fault is removed
	abort  bool                        // closes the connection
	watch  *ending                     // lets a watch begin and ends it so
	events int                         // after that many events
}

// Answer responds with a status of your own.
func Answer(status metav1.Status) Action {
	return Action{answer: func(Request) metav1.Status { return status }}
}

// Conflict responds 409: the object has been modified.
func Conflict() Action {
	return Action{answer: func(r Request) metav1.Status {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		return apierrors.NewConflict(resource, r.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again")).Status()
	}}
}

// Gone responds 410: the resource version or the continuation is too old.
// To a watch this is the answer to the request; see ExpireWatch for one
// inside the stream.
func Gone() Action { return Answer(expired()) }

func expired() metav1.Status {
	status := apierrors.NewResourceExpired("too old resource version: 1 (2)").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

// TooManyRequests responds 429 with a Retry-After in whole seconds. Mind that
// client-go repeats such a request by itself, up to ten times.
func TooManyRequests(retryAfterSeconds int) Action {
	return Answer(apierrors.NewTooManyRequests("too many requests, please try again later", retryAfterSeconds).Status())
}

// InternalError responds 500.
func InternalError() Action {
	return Answer(apierrors.NewInternalError(errors.New("injected by the lab")).Status())
}

// Unavailable responds 503.
func Unavailable() Action {
	return Answer(apierrors.NewServiceUnavailable("injected by the lab").Status())
}

// Delay lets a request wait before it goes on to the API server, or to the
// next rule that matches.
func Delay(d time.Duration) Action { return Action{delay: d} }

// Hold lets a request wait until the fault is removed; then it goes on.
func Hold() Action { return Action{hold: true} }

// Abort closes the connection without an answer.
func Abort() Action { return Action{abort: true} }

// CutWatch breaks the stream of a watch after some events; after zero the
// caller may not even see that it began.
func CutWatch(afterEvents int) Action { return Action{watch: &endCut, events: afterEvents} }

// ExpireWatch ends a watch after some events with an ERROR event that says
// 410 Gone.
func ExpireWatch(afterEvents int) Action { return Action{watch: &endExpired, events: afterEvents} }

// Fault is a rule at work.
type Fault struct {
	api     *API
	rule    Rule
	removed chan struct{}

	// Guarded by api.mu.
	seen, hits int
	gone       bool
}

// Add puts a rule to work. Rules are tried in the order of Add; delaying
// ones let the following ones match too.
func (a *API) Add(rule Rule) *Fault {
	f := &Fault{api: a, rule: rule, removed: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, f)
	return f
}

// RemoveAll ends all faults.
func (a *API) RemoveAll() {
	a.mu.Lock()
	faults := slices.Clone(a.faults)
	a.mu.Unlock()
	for _, f := range faults {
		f.Remove()
	}
}

// Remove ends the fault. Requests that it holds go on.
func (f *Fault) Remove() {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.gone {
		return
	}
	f.gone = true
	close(f.removed)
	f.api.faults = slices.DeleteFunc(f.api.faults, func(other *Fault) bool { return other == f })
}

// Hits is how many requests it has happened to.
func (f *Fault) Hits() int {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	return f.hits
}

// WaitHits returns when it has happened to n requests.
func (f *Fault) WaitHits(ctx context.Context, n int) error {
	err := f.api.wait(ctx, func() bool { return f.hits >= n })
	if err != nil {
		return fmt.Errorf("waiting for %d requests to meet the fault, %d did: %w", n, f.Hits(), err)
	}
	return nil
}

// take decides whether the fault happens to the request, and counts.
func (f *Fault) take(r Request) bool {
	if !f.rule.matches(r) || f.rule.Do.watch != nil && r.Verb != "watch" {
		return false
	}
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.gone || f.rule.Times > 0 && f.hits >= f.rule.Times {
		return false
	}
	f.seen++
	if f.seen <= f.rule.Skip {
		return false
	}
	f.hits++
	f.api.notify()
	return true
}
