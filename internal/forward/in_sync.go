package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// inSyncPath is the path of the request for the times of agents. A replica of an older release refuses it.
const inSyncPath = "/in-sync"

// maxInSyncSize limits the response: 100,000 agents with long names.
const maxInSyncSize = 16 << 20

// InSync asks the replica at an address when its agents were last in sync, in seconds, by agent.
func (f *Forwarder) InSync(ctx context.Context, address string) (map[string]int64, error) {
	if f.auth == nil {
		return nil, identity.ErrNotReplica
	}
	config, err := f.auth.ClientTLS()
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://principal"+inSyncPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, &refusedError{strings.TrimSpace(string(reason))}
	}
	var times map[string]int64
	if err := json.NewDecoder(io.LimitReader(response.Body, maxInSyncSize)).Decode(&times); err != nil {
		return nil, fmt.Errorf("decode the times of agents: %w", err)
	}
	return times, nil
}

// serveInSync answers InSync of another replica.
func (f *Forwarder) serveInSync(conn *tls.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	if code, err := f.authorizeReplica(conn); err != nil {
		writeRefusal(conn, code, err)
		return
	}
	times := f.local.InSync()
	if times == nil {
		writeRefusal(conn, http.StatusNotFound, errors.New("this principal has no search API"))
		return
	}
	body, err := json.Marshal(times)
	if err != nil {
		writeRefusal(conn, http.StatusInternalServerError, err)
		return
	}
	writeResponse(conn, http.StatusOK, string(body))
}

// authorizeReplica verifies the peer again, because the certificate of the replicas may have changed since the handshake.
func (f *Forwarder) authorizeReplica(conn *tls.Conn) (code int, err error) {
	if f.auth == nil {
		return http.StatusForbidden, identity.ErrNotReplica
	}
	state := conn.ConnectionState()
	if err := f.auth.Verify(&state); err != nil {
		return http.StatusForbidden, err
	}
	return f.local.AuthorizeReplica(&state)
}

func writeResponse(conn net.Conn, code int, text string) {
	_ = (&http.Response{StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}).Write(conn)
}
