package websocket

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// maxRequest bounds the HTTP request of a client.
const maxRequest = 32 << 10

// Accept reads the HTTP request of a client that asks for a WebSocket, and returns the connection inside of it.
func Accept(conn net.Conn) (net.Conn, error) {
	limited := &io.LimitedReader{R: conn, N: maxRequest}
	reader := bufio.NewReaderSize(limited, 4<<10)
	req, err := http.ReadRequest(reader)
	if err != nil {
		return nil, fmt.Errorf("the client sends neither TLS nor HTTP: %w", err)
	}
	response := &responseWriter{conn: conn, header: http.Header{}, reader: reader}
	if req.URL.Path != path {
		http.Error(response, "Agents connect to this port: with a WebSocket at "+path+", or with gRPC and TLS.", http.StatusNotFound)
		return nil, fmt.Errorf("a request for %.64q, which does not exist", req.URL.Path)
	}
	limited.N = 1<<63 - 1
	ws, err := websocket.Accept(response, req, &websocket.AcceptOptions{
		Subprotocols:       []string{protocol},
		InsecureSkipVerify: true, // of the origin: a page in a browser has no certificate for the TLS inside
	})
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != protocol {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("the client is not an agent: its WebSocket does not offer the protocol %s", protocol)
	}
	return newConn(ws, conn), nil
}

// responseWriter answers the one request of a connection, and passes on the connection.
type responseWriter struct {
	conn   net.Conn
	header http.Header
	reader *bufio.Reader
	wrote  bool
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(code int) {
	if w.wrote {
		return
	}
	w.wrote = true
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	if code != http.StatusSwitchingProtocols {
		w.header.Set("Connection", "close")
	}
	_ = w.header.Write(&b)
	b.WriteString("\r\n")
	_, _ = w.conn.Write(b.Bytes())
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.conn.Write(b)
}

func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(w.reader, bufio.NewWriterSize(w.conn, 4<<10)), nil
}
