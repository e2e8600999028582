package tunnel

import (
	"strings"
	"unicode"
)

const (
	// MaxData is the number of bytes in one data frame.
	MaxData = 32 << 10

	MaxToken  = 256
	MaxReason = 1024
	MaxTarget = 64
)

// Stream carries the frames of one tunnel, in order. One goroutine sends while another one receives. Its errors are
// fit for users.
type Stream interface {
	// NewBuffer copies at most MaxData bytes into memory of the stream. The caller must pass the buffer to SendData or
	// free it.
	NewBuffer(data []byte) Buffer

	// SendData and Send wait while the peer does not read. They return io.EOF if the stream has ended. Receive then
	// returns the reason.
	SendData(Buffer) error
	Send(Frame) error

	// Receive returns io.EOF if the peer ended the stream in order.
	Receive() (Frame, error)

	// CloseSend ends the stream in order. Only the agent calls it. The hub ends a stream when Pool.Serve returns.
	CloseSend()
}

// Buffer is data that waits to be sent.
type Buffer interface{ Free() }

// Reader is data that was received. It must be closed.
type Reader interface {
	Read([]byte) (int, error)
	Remaining() int
	Close() error
}

// Frame is one message of a tunnel. The first frame of an agent has a token or a target.
type Frame struct {
	Token  string // the first frame of the hub may request another tunnel with it
	Target string
	Data   Reader // nil if there is none
	End    bool   // no more data follows
	Reason string // why there is no tunnel, or why it broke
	Err    error  // set by Receive if the peer sent an invalid frame
}

func (f *Frame) free() {
	if f.Data != nil {
		_ = f.Data.Close()
	}
}

// SanitizeText makes a peer's text fit for logs and messages: valid UTF-8 without control characters, at most limit
// bytes.
func SanitizeText(s string, limit int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), limit)], ""))
}
