package resource

import (
	"bufio"
	"io"
	"net/http"
	"time"
)

// rejectStaleWrite rejects a write that was delayed for too long. A connection that stalls and recovers delivers old
// requests, and a write must not happen after its caller got an error.
//
// So the Hub does not send the body of a write, even an empty one, with the request. The Agent requests it with "100
// Continue" when it is ready, and the Hub sends it only if the caller is still connected. If the body takes too long, the
// write is not executed.
func rejectStaleWrite(r *http.Request, limit time.Duration) *Status {
	if hasNoBody(r) || r.Header.Get("Expect") == "" {
		return nil
	}
	asked := time.Now()
	reader := bufio.NewReaderSize(r.Body, 4<<10)
	_, err := reader.Peek(1)
	if err != nil && err != io.EOF {
		return badRequest("the caller disconnected; nothing was changed")
	}
	if waited := time.Since(asked); waited > limit {
		return gatewayTimeout("the request was delayed for " + waited.Round(time.Second).String() + "; nothing was changed")
	}
	if err == io.EOF && r.ContentLength < 0 { // no body
		r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
		return nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{reader, r.Body}
	return nil
}
