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

// Rule is a fault for matching requests.
type Rule struct {
	Match
	// Do is the fault.
	Do Action
	// Times limits the number of affected requests. If zero, all requests until the fault is removed.
	Times int
	// Skip is the number of matching requests that pass first.
	Skip int
}

// Action is the effect of a rule on a request.
type Action struct {
	answer func(Request) metav1.Status // response instead of the API server's
	delay  time.Duration               // delay before the request continues
	hold   bool                        // wait until the fault is removed
	abort  bool                        // close the connection
	watch  *ending                     // ending of a watch
	events int                         // number of events before the ending
}

// Answer responds with the status of a function.
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

// Gone responds 410: the resourceVersion or the continue token is too old. For a watch this is the response to the
// request. ExpireWatch sends it inside the stream.
func Gone() Action { return Answer(expired()) }

func expired() metav1.Status {
	status := apierrors.NewResourceExpired("too old resource version: 1 (2)").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

// TooManyRequests responds 429 with a Retry-After in whole seconds. client-go retries such a request up to ten times.
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

// Delay delays a request before it continues to the API server or the next matching rule.
func Delay(d time.Duration) Action { return Action{delay: d} }

// Hold delays a request until the fault is removed.
func Hold() Action { return Action{hold: true} }

// Abort closes the connection without a response.
func Abort() Action { return Action{abort: true} }

// CutWatch breaks the stream of a watch after some events. If zero, the caller may not receive the response header.
func CutWatch(afterEvents int) Action { return Action{watch: &endCut, events: afterEvents} }

// ExpireWatch ends a watch after some events with an ERROR event with status 410 Gone.
func ExpireWatch(afterEvents int) Action { return Action{watch: &endExpired, events: afterEvents} }

// Fault is an active rule.
type Fault struct {
	api     *API
	rule    Rule
	removed chan struct{}

	// Guarded by api.mu.
	seen, hits int
	gone       bool
}

// Add activates a rule. Rules are evaluated in the order of Add. After a delaying rule, the next rules are evaluated
// too.
func (a *API) Add(rule Rule) *Fault {
	f := &Fault{api: a, rule: rule, removed: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, f)
	return f
}

// RemoveAll removes all faults.
func (a *API) RemoveAll() {
	a.mu.Lock()
	faults := slices.Clone(a.faults)
	a.mu.Unlock()
	for _, f := range faults {
		f.Remove()
	}
}

// Remove removes the fault. Requests that it holds continue.
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

// Hits returns the number of affected requests.
func (f *Fault) Hits() int {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	return f.hits
}

// WaitHits waits for n affected requests.
func (f *Fault) WaitHits(ctx context.Context, n int) error {
	err := f.api.wait(ctx, func() bool { return f.hits >= n })
	if err != nil {
		return fmt.Errorf("waiting for %d requests to meet the fault, %d did: %w", n, f.Hits(), err)
	}
	return nil
}

// take reports whether the fault affects the request, and counts it.
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
