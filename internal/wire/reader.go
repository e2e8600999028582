package wire

import (
	"bytes"
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// reader walks over the fields of a protobuf message, in whatever order they
// come. The first error ends the walk.
type reader struct {
	rest []byte
	tag  tag
	num  uint64 // value of the field, if it is a number
	data []byte // value of the field, if it is a block; part of the input
	err  *Error
}

// next moves to the next field. Fields that nobody knows are passed over by not
// looking at them.
func (r *reader) next() bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(r.rest)
	if n < 0 || num > protowire.MaxValidNumber {
		return r.malformed()
	}
	r.rest = r.rest[n:]
	r.tag = tag(protowire.EncodeTag(num, typ))
	switch typ {
	case protowire.VarintType:
		r.num, n = protowire.ConsumeVarint(r.rest)
	case protowire.Fixed64Type:
		r.num, n = protowire.ConsumeFixed64(r.rest)
	case protowire.BytesType:
		r.data, n = protowire.ConsumeBytes(r.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, r.rest)
	}
	if n < 0 {
		return r.malformed()
	}
	r.rest = r.rest[n:]
	return true
}

func (r *reader) malformed() bool {
	r.fail(badField("", "is truncated or no protobuf"))
	return false
}

func (r *reader) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
}

// bool reads the current field as protobuf does: whatever is not zero is true.
func (r *reader) bool() bool { return r.num != 0 }

// string reads the current field as a string that has to obey a rule.
func (r *reader) string(field string, rl rule) string {
	if len(r.data) > rl.max {
		r.fail(badField(field, "%s", rl.tooLong(len(r.data))))
		return ""
	}
	s := string(r.data)
	if reason := rl.violation(s); reason != "" {
		r.fail(badField(field, "%s", reason))
	}
	return s
}

// need refuses a string that was absent, and so never read.
func (r *reader) need(field, s string) {
	if s == "" {
		r.fail(badField(field, "is missing"))
	}
}

// bytes copies the current field.
func (r *reader) bytes(field string, limit int) []byte {
	if len(r.data) > limit {
		r.fail(badField(field, "has %d bytes, at most %d are allowed", len(r.data), limit))
		return nil
	}
	if len(r.data) == 0 {
		return nil
	}
	return bytes.Clone(r.data)
}

// pair reads the current field as a 128-bit number.
func (r *reader) pair(field string) (hi, lo uint64) {
	if len(r.data) != 16 {
		if len(r.data) != 0 {
			r.fail(badField(field, "has %d bytes instead of 16", len(r.data)))
		}
		return 0, 0
	}
	return pairAt(r.data, 0)
}

// pairAt is number i of a column of 128-bit numbers.
func pairAt(column []byte, i int) (hi, lo uint64) {
	b := column[16*i : 16*i+16]
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// version reads the current field as a version number of protocol or projection.
func (r *reader) version(field string) int {
	if r.num > maxNumber {
		r.fail(badField(field, "is %d, outside 0 to %d", r.num, maxNumber))
		return 0
	}
	return int(r.num)
}

// pause reads the current field as how long to wait.
func (r *reader) pause(field string) int64 {
	if r.num > MaxRetryMillis {
		r.fail(badField(field, "is longer than a day"))
		return 0
	}
	return int64(r.num)
}

// nested takes over the error of a message within this one.
func (r *reader) nested(field string, err *Error) {
	if err != nil {
		r.fail(err.in(field))
	}
}

// entry is nested for entry i of a list. The name is made only if needed.
func (r *reader) entry(list string, i int, err *Error) {
	if err != nil {
		r.fail(err.in(at(list, i)))
	}
}

// count returns how many fields with this tag are ahead, so that a list is made
// once and in the right size, or not at all if it is too long.
func (r *reader) count(t tag, field string, limit int) int {
	ahead, n := reader{rest: r.rest}, 0
	for ahead.next() {
		if ahead.tag == t {
			n++
		}
	}
	if ahead.err != nil {
		r.fail(ahead.err)
		return 0
	}
	if n > limit {
		r.fail(tooMany(field, limit))
		return 0
	}
	return n
}
