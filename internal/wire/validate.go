package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// walk calls f for each field of an encoded message, with its number if it is a varint, and with its data if it has a
// length.
func walk(b []byte, f func(num protowire.Number, typ protowire.Type, number uint64, data []byte) *Error) *Error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return malformed()
		}
		b = b[n:]
		var number uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return malformed()
		}
		b = b[n:]
		if err := f(num, typ, number, data); err != nil {
			return err
		}
	}
	return nil
}

func malformed() *Error { return badField("", "is truncated or not protobuf") }

// validate checks an encoded message before memory is allocated for it. Unknown fields, and fields with another wire
// type, are ignored as the generated types do.
func (s schema) validate(b []byte) *Error {
	var entries [32]int // by field number
	err := walk(b, func(num protowire.Number, typ protowire.Type, number uint64, data []byte) *Error {
		if int(num) >= len(s) || s[num] == nil {
			return nil
		}
		f := s[num]
		added := 1
		if f.list && f.wire == protowire.Fixed64Type && typ == protowire.BytesType { // packed
			if added = len(data) / 8; len(data)%8 != 0 {
				return badField(f.name, "has an incomplete number")
			}
		} else if typ != f.wire {
			return nil
		}
		index := entries[num]
		entries[num] += added
		if f.list && entries[num] > f.entries {
			return badField(f.name, "has more than %d entries", f.entries)
		}
		return f.validate(index, number, data)
	})
	if err != nil {
		return err
	}
	for num, f := range s {
		switch {
		case f == nil || f.list || entries[num] > 0:
		case f.str != nil && !f.str.optional:
			return badField(f.name, "is missing")
		case f.required:
			return f.message.validate(nil).in(f.name)
		}
	}
	return nil
}

// validate checks one value. index is its position, if the field is a list.
func (f *field) validate(index int, number uint64, data []byte) *Error {
	switch {
	case f.message != nil:
		err := f.message.validate(data)
		if err != nil && f.list {
			return err.in(at(f.name, index))
		}
		return err.in(f.name)
	case f.str != nil:
		if reason := f.str.violation(data); reason != "" {
			return badField(f.name, "%s", reason)
		}
	case f.hash:
		if len(data) != 0 && len(data) != 16 {
			return badField(f.name, "has %d bytes instead of 16", len(data))
		}
	case f.number > 0 && number > f.number:
		return badField(f.name, "is %d, at most %d is allowed", number, f.number)
	case f.size > 0 && len(data) > f.size:
		return tooLong(f.name, len(data), f.size)
	}
	return nil
}
