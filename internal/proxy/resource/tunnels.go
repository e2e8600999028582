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
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// http.Transport pools connections by host, so each agent has a host: its name in hex, because not every name is a valid
// host name.

func hostOf(agent string) string { return hex.EncodeToString([]byte(agent)) + ".agent" }

func agentOf(host string) (string, error) {
	name, _, _ := strings.Cut(host, ".")
	agent, err := hex.DecodeString(name)
	return string(agent), err
}

var errDial = errors.New("no tunnel in time")

// newTunnels returns the transport to all agents. It repeats a request only if it is a read or no byte of it was sent.
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
		MaxIdleConns:           1000,
		MaxIdleConnsPerHost:    config.IdlePerAgent,
		IdleConnTimeout:        30 * time.Second, // below the idle timeout of the Agent
		MaxResponseHeaderBytes: 256 << 10,
		ExpectContinueTimeout:  24 * time.Hour, // never send a body that was not requested
		DisableCompression:     true,           // bodies are forwarded unchanged
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         bufferSize,
	}
}

const bufferSize = 32 << 10

// errorLog logs errors of net/http about clients at debug level.
func errorLog(logger *slog.Logger) *log.Logger {
	return slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
}
