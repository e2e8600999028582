package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Status is the part of a metav1.Status that the proxy uses.
type Status struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   struct{} `json:"metadata"`
	Outcome    string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"`
	Details    *Details `json:"details,omitempty"`
	Code       int      `json:"code"`

	setting string // the setting that denies the request, if any
}

// Details has the object of an error and the retry interval.
type Details struct {
	Name              string `json:"name,omitempty"`
	Group             string `json:"group,omitempty"`
	Kind              string `json:"kind,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`
}

// statusError is a Status as the cause of a cancellation.
type statusError struct{ status *Status }

func (e *statusError) Error() string { return e.status.Message }

func newStatus(code int, reason, message string) *Status {
	return &Status{APIVersion: "v1", Kind: "Status", Outcome: "Failure", Message: message, Reason: reason, Code: code}
}

func badRequest(message string) *Status {
	return newStatus(http.StatusBadRequest, "BadRequest", message)
}

func badGateway(message string) *Status {
	return newStatus(http.StatusBadGateway, "InternalError", message)
}

func unavailable(message string) *Status {
	s := newStatus(http.StatusServiceUnavailable, "ServiceUnavailable", message)
	s.Details = &Details{RetryAfterSeconds: 5}
	return s
}

func gatewayTimeout(message string) *Status {
	return newStatus(http.StatusGatewayTimeout, "Timeout", message)
}

func tooManyRequests(message string) *Status {
	s := newStatus(http.StatusTooManyRequests, "TooManyRequests", message)
	s.Details = &Details{RetryAfterSeconds: 1}
	return s
}

// write sends the Status. Only status 429 has a Retry-After header: client-go sleeps as long as the header says and retries
// ten times before its caller, often a waiting user, gets the error.
func (s *Status) write(w http.ResponseWriter) {
	body, err := json.Marshal(s)
	if err != nil { // strings and numbers
		panic(fmt.Errorf("encode status: %w", err))
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-cache, private")
	if s.Code == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(s.Details.RetryAfterSeconds))
	}
	w.WriteHeader(s.Code)
	_, _ = w.Write(body)
}
