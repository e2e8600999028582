// Package control is the protocol between a running lab and its clients: HTTP over a Unix socket in the directory of
// the lab, which only the owner of the directory can reach.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Handler handles requests of clients.
type Handler interface {
	Status() []proc.Status
	Act(ctx context.Context, component, action string, change proc.Change) error
	Port() (int, error)
	Down()
}

// The actions on a component.
const (
	Stop     = "stop"
	Continue = "continue"
	Kill     = "kill"
	Restart  = "restart"
)

const socketName = "control.sock"

// socket returns the path of the socket through an open directory, because the path of a Unix socket must be short. The
// directory must stay open while the path is used.
func socket(folder *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(folder.Fd())), socketName)
}

// Listen opens the socket in the directory of the lab.
func Listen(folder string) (net.Listener, error) {
	_ = os.Remove(filepath.Join(folder, socketName)) // of a killed lab
	opened, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	listener, err := net.Listen("unix", socket(opened))
	if err != nil {
		return nil, fmt.Errorf("open the control socket in %s: %w", folder, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // its path is invalid after the descriptor is closed
	return listener, nil
}

// Serve serves requests until the listener is closed.
func Serve(listener net.Listener, lab Handler) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, lab.Status(), nil) })
	mux.HandleFunc("POST /port", func(w http.ResponseWriter, _ *http.Request) {
		port, err := lab.Port()
		answer(w, port, err)
	})
	mux.HandleFunc("POST /act", func(w http.ResponseWriter, r *http.Request) {
		var request action
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			answer(w, nil, err)
			return
		}
		answer(w, nil, lab.Act(r.Context(), request.Component, request.Action, request.Change))
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil, nil)
		lab.Down()
	})
	server := &http.Server{Handler: mux}
	if err := server.Serve(listener); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

type action struct {
	Component string      `json:"component"`
	Action    string      `json:"action"`
	Change    proc.Change `json:"change"`
}

type reply struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func answer(w http.ResponseWriter, result any, failure error) {
	var r reply
	if failure != nil {
		r.Error = failure.Error()
	} else if result != nil {
		r.Result, failure = json.Marshal(result)
		if failure != nil {
			r.Error = failure.Error()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(r)
}
