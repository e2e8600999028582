package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// apiError is an answer of the API server that is no success.
type apiError struct {
	status     int
	about      string // what it is about: the plural in metav1.Status' details
	message    string
	retryAfter int // seconds
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the API server says %d: %s", e.status, e.message)
}

// maxErrorBody bounds what is read of an error, which may come from anything
// between here and the API server.
const maxErrorBody = 64 << 10

func readError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	e := &apiError{status: resp.StatusCode, about: raw.Text(b, "details", "kind"), message: raw.Text(b, "message")}
	if e.message == "" {
		e.message = http.StatusText(resp.StatusCode)
		if text := strings.TrimSpace(string(b)); text != "" {
			e.message += ": " + text[:min(len(text), 200)]
		}
	}
	e.retryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return e
}

func isStatus(err error, status int) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == status
}

// IsTooLarge tells that an object would be larger than the API server takes.
func IsTooLarge(err error) bool {
	var e *apiError
	return errors.As(err, &e) && (e.status == http.StatusRequestEntityTooLarge ||
		strings.Contains(e.message, "Too long") && strings.Contains(e.message, "1048576") || // of a ConfigMap or Secret
		strings.Contains(e.message, "request is too large") || strings.Contains(e.message, "larger than max"))
}

// lacksNamespace tells that an object could not be created because of its
// namespace, and not because nobody knows such objects.
func lacksNamespace(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusNotFound && e.about == Namespaces.Plural
}

// failureOf tells the node what became of a write. The hint is for the case that
// the namespace is missing.
func failureOf(verb node.Verb, err error, hint string) *node.Failure {
	f := &node.Failure{Code: engine.Unavailable, Message: err.Error()}
	var e *apiError
	if !errors.As(err, &e) {
		return f
	}
	f.Message = e.message
	f.RetryAfter = engine.Time(e.retryAfter) * engine.Second
	switch {
	case e.status == http.StatusConflict:
		f.Stale = true
	case lacksNamespace(err) && verb == node.Create:
		// It may come too, and nothing would tell: the code stays one that is tried again.
		f.Message += " (" + hint + ")"
	case e.status == http.StatusNotFound && verb == node.Create:
		// No such resource. It may come, and nothing would tell.
		f.Message += " (is Argo CD's CRD installed?)"
	case e.status == http.StatusNotFound:
		f.Stale = true
	case e.status == http.StatusForbidden:
		f.Code = engine.Forbidden
	case IsTooLarge(err):
		f.Code = engine.TooLarge
	case e.status == http.StatusTooManyRequests || e.status >= 500:
	case e.status >= 400:
		f.Code = engine.Invalid
	}
	return f
}
