package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// apiError is an answer of the API server that is no success.
type apiError struct {
	status     int
	reason     string // of the metav1.Status in the body; empty: the body is none, so that something else may have answered
	detailsKind      string // what it is about: the plural in its details
	detailsName       string // and the name there
	path       string // that was asked for
	message    string
	retryAfter int // seconds
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the API server says %d: %s", e.status, e.message)
}

// maxErrorBody bounds what is read of an error, which may come from anything
// between here and the API server.
const maxErrorBody = 64 << 10

func readError(resp *http.Response, path string) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	e := &apiError{status: resp.StatusCode, path: path, message: rawjson.Text(b, "message")}
	if rawjson.Text(b, "kind") == "Status" {
		e.reason = cmp.Or(rawjson.Text(b, "reason"), reasonUnknown)
		e.detailsKind, e.detailsName = rawjson.Text(b, "details", "kind"), rawjson.Text(b, "details", "name")
	}
	if e.message == "" {
		e.message = http.StatusText(resp.StatusCode)
		if text := strings.TrimSpace(string(b)); text != "" {
			e.message += ": " + text[:min(len(text), 200)]
		}
	}
	e.retryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return e
}

// Reasons of a metav1.Status from which something follows.
const (
	reasonNotFound      = "NotFound"
	reasonConflict      = "Conflict"
	reasonAlreadyExists = "AlreadyExists"
	reasonUnknown       = "Unknown"
)

// isStatus reports whether an answer has an HTTP status, whoever gave it. Nothing
// may be concluded from that about an object: a proxy or a load balancer in
// front of the API server answers 404 and 409 too.
func isStatus(err error, status int) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == status
}

// notFound reports whether the API server has said that there is no object of
// the name that was asked for.
func (e *apiError) notFound() bool {
	if e.status != http.StatusNotFound || e.reason != reasonNotFound || e.detailsKind == "" || e.detailsName == "" {
		return false
	}
	object := "/" + e.detailsKind + "/" + e.detailsName
	return strings.HasSuffix(e.path, object) || strings.HasSuffix(e.path, object+"/status")
}

// conflict reports whether the API server has said that an object is there
// already, or is not as it was read.
func (e *apiError) conflict() bool {
	return e.status == http.StatusConflict && (e.reason == reasonConflict || e.reason == reasonAlreadyExists)
}

// IsTooLarge tells that an object would be larger than the API server takes.
func IsTooLarge(err error) bool {
	var e *apiError
	return errors.As(err, &e) && (e.status == http.StatusRequestEntityTooLarge ||
		strings.Contains(e.message, "Too long") && strings.Contains(e.message, "1048576") || // of a ConfigMap or Secret
		strings.Contains(e.message, "request is too large") || strings.Contains(e.message, "larger than max"))
}

// isNamespaceMissing tells that an object could not be created because of its
// namespace, and not because nobody knows such objects.
func isNamespaceMissing(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusNotFound && e.reason == reasonNotFound && e.detailsKind == Namespaces.Plural
}

// prerequisiteError says why a write was not begun: what has to come before it failed.
type prerequisiteError struct{ cause error }

func (e *prerequisiteError) Error() string { return e.cause.Error() }
func (e *prerequisiteError) Unwrap() error { return e.cause }

// toFailure tells the node what became of a write. The hint is for the case that
// the namespace is missing.
func toFailure(verb reconcile.Verb, err error, hint string) *reconcile.Failure {
	f := &reconcile.Failure{Code: engine.Unavailable, Message: err.Error()}
	if _, ok := errors.AsType[*prerequisiteError](err); ok {
		return f // whatever the reason, it is not the object's
	}
	var e *apiError
	if !errors.As(err, &e) {
		return f
	}
	f.Message = e.message
	f.RetryAfter = engine.Time(e.retryAfter) * engine.Second
	switch {
	case e.conflict():
		f.Stale = true
	case isNamespaceMissing(err) && verb == reconcile.Create:
		// It may come too, and nothing would tell: the code stays one that is tried again.
		f.Message += " (" + hint + ")"
	case e.status == http.StatusNotFound && verb == reconcile.Create:
		// No such resource. It may come, and nothing would tell.
		f.Message += " (is Argo CD's CRD installed?)"
	case e.notFound():
		f.Stale = true
	case IsTooLarge(err):
		f.Code = engine.TooLarge
	case e.reason == "" || e.status == http.StatusNotFound:
		// Not the API server's word on this object: it is tried again.
	case e.status == http.StatusForbidden:
		f.Code = engine.Forbidden
	case e.status == http.StatusTooManyRequests || e.status >= 500:
	case e.status >= 400:
		f.Code = engine.Invalid
	}
	return f
}
