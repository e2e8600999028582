package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Status is the error that clients of an API server understand: the parts of Kubernetes' own that we fill.
type Status struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   struct{} `json:"metadata"`
	Outcome    string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"`
	Details    *Details `json:"details,omitempty"`
	Code       int      `json:"code"`

	setting string // of a refusal by policy: which setting decides
}

// Details says what an error is about, and when to try again.
type Details struct {
	Name              string `json:"name,omitempty"`
	Group             string `json:"group,omitempty"`
	Kind              string `json:"kind,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`
}

// statusError is a Status as the cause of a cancellation.
type statusError struct{ status *Status }

func (e *statusError) Error() string { return e.status.Message }

func refusal(code int, reason, message string) *Status {
	return &Status{APIVersion: "v1", Kind: "Status", Outcome: "Failure", Message: message, Reason: reason, Code: code}
}

func badRequest(message string) *Status {
	return refusal(http.StatusBadRequest, "BadRequest", message)
}

func badGateway(message string) *Status {
	return refusal(http.StatusBadGateway, "InternalError", message)
}

func unavailable(message string) *Status {
	s := refusal(http.StatusServiceUnavailable, "ServiceUnavailable", message)
	s.Details = &Details{RetryAfterSeconds: 5}
	return s
}

func tooLate(message string) *Status {
	return refusal(http.StatusGatewayTimeout, "Timeout", message)
}

func tooMany(message string) *Status {
	s := refusal(http.StatusTooManyRequests, "TooManyRequests", message)
	s.Details = &Details{RetryAfterSeconds: 1}
	return s
}

// write sends the Status as an answer.
//
// When to try again is in the body and, except for "too many", not in a header: client-go sleeps for as long as a header
// says and tries ten times before its caller learns anything, and a person waits in front of it.
func (s *Status) write(w http.ResponseWriter) {
	body, err := json.Marshal(s)
	if err != nil { // strings and numbers
		panic(fmt.Errorf("encode a status: %w", err))
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
