package sharedmode

import "google.golang.org/protobuf/encoding/protowire"

// path has the numbers of nested fields.
type path []protowire.Number

// each calls f with every string or number at a path, even if a field that is not repeated occurs twice, because the
// receiver may use either. It returns false if the message is invalid.
func each(message []byte, p path, f func(value []byte)) bool {
	if len(p) == 0 {
		f(message)
		return true
	}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return false
		}
		if number == p[0] && kind == protowire.VarintType && len(p) == 1 {
			f(message[n : n+size])
		}
		if number == p[0] && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			if !each(value, p[1:], f) {
				return false
			}
		}
		message = message[n+size:]
	}
	return true
}

// last returns the last string at a path.
func last(message []byte, p path) string {
	var text string
	each(message, p, func(value []byte) { text = string(value) })
	return text
}

// isTrue returns the last boolean at a path.
func isTrue(message []byte, p path) bool {
	var yes bool
	each(message, p, func(value []byte) {
		n, size := protowire.ConsumeVarint(value)
		yes = size == len(value) && n != 0
	})
	return yes
}

// with sets a string field of a message. The last occurrence counts.
func with(message []byte, number protowire.Number, text string) []byte {
	message = protowire.AppendTag(message, number, protowire.BytesType)
	return protowire.AppendString(message, text)
}

// withBool sets a boolean field of a message.
func withBool(message []byte, number protowire.Number, yes bool) []byte {
	message = protowire.AppendTag(message, number, protowire.VarintType)
	return protowire.AppendVarint(message, protowire.EncodeBool(yes))
}
