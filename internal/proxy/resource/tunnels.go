package resource

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// The transport keeps unused connections by host, so an agent is a host: its name in hex, since a name need not be one
// that a host may have.

func hostOf(agent string) string { return hex.EncodeToString([]byte(agent)) + ".agent" }

func agentOf(host string) (string, error) {
	name, _, _ := strings.Cut(host, ".")
	agent, err := hex.DecodeString(name)
	return string(agent), err
}

var errDial = errors.New("no tunnel in time")

// newTunnels is the transport to all agents. It sends no request twice, unless the first attempt put no byte on the
// wire, or it is a read.
func newTunnels(config *HubConfig) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			agent, err := agentOf(address)
			if err != nil {
				return nil, fmt.Errorf("dial %q: %w", address, err)
			}
			ctx, span := trace.StartChild(ctx, trace.KindInternal, "open a tunnel")
			defer span.End()
			ctx, cancel := context.WithTimeoutCause(ctx, config.DialTimeout, errDial)
			defer cancel()
			conn, err := config.Dial(ctx, agent)
			if err != nil {
				span.Fail(err.Error())
			}
			if err != nil && errors.Is(context.Cause(ctx), errDial) {
				return nil, errDial
			}
			return conn, err
		},
		MaxIdleConns:           config.IdleTotal,
		MaxIdleConnsPerHost:    config.IdlePerAgent,
		IdleConnTimeout:        config.TunnelIdle,
		MaxResponseHeaderBytes: 256 << 10,
		ExpectContinueTimeout:  24 * time.Hour, // a body that nobody asked for is never sent
		DisableCompression:     true,           // bodies pass as they are
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         bufferSize,
	}
}

const bufferSize = 32 << 10

// buffers are what bodies are copied with.
var buffers = &bufferPool{pool: sync.Pool{New: func() any { return new([bufferSize]byte) }}}

type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	buffer, _ := p.pool.Get().(*[bufferSize]byte)
	return buffer[:]
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }

// errorLog is where net/http complains about clients. They are not our operators' concern.
func errorLog(logger *slog.Logger) *log.Logger {
	return slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
}
