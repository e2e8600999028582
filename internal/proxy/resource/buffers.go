package resource

import (
	"net/http"
	"net/http/httputil"
	"sync"
)

const copyBufferSize = 32 << 10

// copyBuffers reuses the buffers that copy responses. Without it, a proxy allocates one for each response. A buffer is not
// reused if a Write of it failed: net/http's HTTP/2 server can still send it to a caller that has reset its stream, and the next
// owner may be a response of another agent. A Write that succeeds keeps nothing.
type copyBuffers struct{ pool sync.Pool }

// forward passes a request to a proxy that copies the response with these buffers.
func (c *copyBuffers) forward(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	response := &copiedResponse{ResponseWriter: w, buffers: c}
	one := *proxy
	one.BufferPool = response
	one.ServeHTTP(response, r)
}

// copiedResponse is the writer of one response and its httputil.BufferPool.
type copiedResponse struct {
	http.ResponseWriter
	buffers *copyBuffers
	failed  bool // a Write
}

func (c *copiedResponse) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.failed = c.failed || err != nil
	return n, err
}

// Unwrap implements the interface of http.ResponseController.
func (c *copiedResponse) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Get returns a buffer. Its content is undefined.
func (c *copiedResponse) Get() []byte {
	if b, ok := c.buffers.pool.Get().(*[copyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, copyBufferSize)
}

// Put takes a buffer back that Get returned.
func (c *copiedResponse) Put(b []byte) {
	if !c.failed {
		c.buffers.pool.Put((*[copyBufferSize]byte)(b))
	}
}
