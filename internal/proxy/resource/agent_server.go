package resource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// agentTunnelIdle is the idle timeout of a tunnel. The hub closes its tunnels earlier.
const agentTunnelIdle = 2 * time.Minute

// Serve serves the requests of a tunnel. It returns when Run has accepted the tunnel. After Run has ended, it closes the
// tunnel.
func (a *Agent) Serve(conn net.Conn) {
	if err := a.tunnels.Offer(context.Background(), conn); err != nil {
		_ = conn.Close()
	}
}

// Run serves the requests of all tunnels until the context ends. Call it once.
func (a *Agent) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:                      a,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            agentTunnelIdle, // tunnels may be opened in advance
		IdleTimeout:                  agentTunnelIdle,
		MaxHeaderBytes:               maxHeaders + 4<<10, // more than the hub accepts
		ErrorLog:                     errorLog(a.config.Log),
	}
	defer a.tunnels.Close()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(a.tunnels); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve tunnels of the resource proxy: %w", err)
	}
	return nil
}
