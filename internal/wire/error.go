package wire

import (
	"fmt"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Error is the violation of a rule by a field of a message. Its code is fit for the peer's users.
type Error struct {
	Code   engine.Code // BadMessage or TooLarge
	Field  string      // for example delta.items[3].key.name
	Reason string
}

func (e *Error) Error() string { return e.Field + " " + e.Reason }

func badField(field, format string, args ...any) *Error {
	return &Error{Code: engine.BadMessage, Field: field, Reason: fmt.Sprintf(format, args...)}
}

func tooLong(field string, size, limit int) *Error {
	return badField(field, "has %d bytes, at most %d are allowed", size, limit)
}

func tooLarge(field string, size, limit int) *Error {
	err := tooLong(field, size, limit)
	err.Code = engine.TooLarge
	return err
}

// in adds the parent of the field.
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

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
