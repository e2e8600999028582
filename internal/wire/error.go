package wire

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Error says which field of a message breaks which limit. Its code is one that
// the peer can show its user.
type Error struct {
	Code   engine.Code // BadMessage, or TooLarge
	Field  string      // for example delta.items[3].key.name
	Reason string
}

func (e *Error) Error() string { return e.Field + " " + e.Reason }

func badField(field, format string, args ...any) *Error {
	return &Error{Code: engine.BadMessage, Field: field, Reason: fmt.Sprintf(format, args...)}
}

func tooLarge(field string, size, limit int) *Error {
	return &Error{Code: engine.TooLarge, Field: field,
		Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", size, limit)}
}

func tooMany(field string, limit int) *Error {
	return badField(field, "has more than %d entries", limit)
}

// in tells what the field is part of.
func (e *Error) in(parent string) *Error {
	switch {
	case e == nil:
	case e.Field == "":
		e.Field = parent
	default:
		e.Field = parent + "." + e.Field
	}
	return e
}
