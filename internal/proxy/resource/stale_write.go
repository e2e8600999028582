package resource

import (
	"bufio"
	"io"
	"net/http"
	"time"
)

// rejectStaleWrite refuses a write whose caller may be long gone. A connection that stalls and recovers delivers, minutes later,
// what was sent into it, and a caller who was told that it failed must not find it done after all.
//
// So the body of a write, and be it an empty one, is not sent along: the Hub waits until the Agent asks for it ("100 Continue"), which happens
// when the Agent is ready to carry it out, and sends it only if its caller is still there. If the answer to the question
// takes long, or does not come, the write is not carried out.
func rejectStaleWrite(r *http.Request, limit time.Duration) *Status {
	if hasNoBody(r) || r.Header.Get("Expect") == "" {
		return nil
	}
	asked := time.Now()
	reader := bufio.NewReaderSize(r.Body, 4<<10)
	_, err := reader.Peek(1)
	if err != nil && err != io.EOF {
		return badRequest("the caller went away; nothing was done")
	}
	if waited := time.Since(asked); waited > limit {
		return tooLate("the request was on its way for " + waited.Round(time.Second).String() + " and may be given up by now; nothing was done")
	}
	if err == io.EOF && r.ContentLength < 0 { // there is none
		r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
		return nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{reader, r.Body}
	return nil
}
