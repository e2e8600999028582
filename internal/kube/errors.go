package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// apiError is a failure response of the API server.
type apiError struct {
	status     int
	reason     metav1.StatusReason // empty if the body is no Status and another server may have responded
	details    metav1.StatusDetails
	path       string // of the request
	message    string
	retryAfter int // seconds
}

func (e *apiError) Error() string {
	return fmt.Sprintf("API server responded %d: %s", e.status, e.message)
}

// Status implements errors.APIStatus of apimachinery.
func (e *apiError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: int32(e.status), Reason: e.reason, Message: e.message, Details: &e.details}
}

// maxErrorBody bounds the body of an error, which may come from a proxy.
const maxErrorBody = 64 << 10

func readError(resp *http.Response, path string) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var status metav1.Status
	_ = json.Unmarshal(b, &status) // fails for a proxy
	e := &apiError{status: resp.StatusCode, path: path, message: status.Message}
	if status.Kind == "Status" {
		e.reason = cmp.Or(status.Reason, "Unknown")
		if status.Details != nil {
			e.details = *status.Details
		}
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

// isStatus reports whether a response has an HTTP status. This proves nothing about an object: a proxy in front of the
// API server may respond 404 and 409, too.
func isStatus(err error, status int) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == status
}

// notFound reports whether the API server responded that the requested object does not exist.
func (e *apiError) notFound() bool {
	if e.status != http.StatusNotFound || e.reason != metav1.StatusReasonNotFound || e.details.Kind == "" || e.details.Name == "" {
		return false
	}
	object := "/" + e.details.Kind + "/" + e.details.Name
	return strings.HasSuffix(e.path, object) || strings.HasSuffix(e.path, object+"/status")
}

func (e *apiError) conflict() bool {
	return e.status == http.StatusConflict && (e.reason == metav1.StatusReasonConflict || e.reason == metav1.StatusReasonAlreadyExists)
}

// IsTooLarge reports whether an object exceeds a size limit of the API server.
func IsTooLarge(err error) bool {
	var e *apiError
	return errors.As(err, &e) && (e.status == http.StatusRequestEntityTooLarge ||
		strings.Contains(e.message, "Too long") && strings.Contains(e.message, "1048576") || // ConfigMap or Secret
		strings.Contains(e.message, "request is too large") || strings.Contains(e.message, "larger than max"))
}

// isNamespaceMissing reports whether the namespace of an object does not exist, as opposed to its resource.
func isNamespaceMissing(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusNotFound && e.reason == metav1.StatusReasonNotFound && e.details.Kind == Namespaces.Plural
}

// prerequisiteError means that a write was not sent because a step before it failed.
type prerequisiteError struct{ cause error }

func (e *prerequisiteError) Error() string { return e.cause.Error() }
func (e *prerequisiteError) Unwrap() error { return e.cause }

// notStoredError means that a write was not done because the API server would not store some fields.
type notStoredError struct{ fields []string }

func (e *notStoredError) Error() string {
	return "this cluster does not store " + strings.Join(kind.ShortFields(e.fields), ", ") +
		": upgrade the CRDs of Argo CD, or change --dropped-fields of the agent"
}

// toFailure converts the error of a write. The hint is added if the namespace is missing.
func toFailure(verb reconcile.Verb, err error, hint string) *reconcile.Failure {
	f := &reconcile.Failure{Code: engine.Unavailable, Message: err.Error()}
	if _, ok := errors.AsType[*prerequisiteError](err); ok {
		return f // the object is not the cause
	}
	if e, ok := errors.AsType[*notStoredError](err); ok {
		f.Code, f.NotStored = engine.NotAllowed, e.fields
		return f
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
		// Retried, because no watch reports that the namespace was created.
		f.Message += " (" + hint + ")"
	case e.status == http.StatusNotFound && verb == reconcile.Create:
		// Retried, because no watch reports that the resource is served.
		f.Message += " (is Argo CD's CRD installed?)"
	case e.notFound():
		f.Stale = true
	case IsTooLarge(err):
		f.Code = engine.TooLarge
	case e.reason == "" || e.status == http.StatusNotFound:
		// Not a statement of the API server about this object: retried.
	case e.status == http.StatusForbidden:
		f.Code = engine.Forbidden
	case e.status == http.StatusTooManyRequests || e.status >= 500:
	case e.status >= 400:
		f.Code = engine.Invalid
	}
	return f
}
