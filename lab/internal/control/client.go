package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// ErrNotRunning means that no lab runs in a directory.
var ErrNotRunning = errors.New("no lab is running there")

// Client is a client of the lab in a directory.
type Client struct {
	folder string
	http   *http.Client
}

// NewClient returns a client of the lab in a directory. The lab need not be running.
func NewClient(folder string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		opened, err := os.Open(folder)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		return (&net.Dialer{}).DialContext(ctx, "unix", socket(opened))
	}
	return &Client{folder: folder, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status lists the components.
func (c *Client) Status(ctx context.Context) (all []proc.Status, err error) {
	return all, c.ask(ctx, http.MethodGet, "/status", nil, &all)
}

// Port reserves a port for a process of the caller.
func (c *Client) Port(ctx context.Context) (port int, err error) {
	return port, c.ask(ctx, http.MethodPost, "/port", nil, &port)
}

// Act runs an action on a component and waits for it.
func (c *Client) Act(ctx context.Context, component, what string, change proc.Change) error {
	return c.ask(ctx, http.MethodPost, "/act", action{Component: component, Action: what, Change: change}, nil)
}

// Down requests the end of the lab. It ends after Down has returned.
func (c *Client) Down(ctx context.Context) error {
	return c.ask(ctx, http.MethodPost, "/down", nil, nil)
}

func (c *Client) ask(ctx context.Context, method, path string, body, result any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("query the lab in %s: %w", c.folder, context.Cause(ctx))
		}
		return fmt.Errorf("query the lab in %s: %w", c.folder, ErrNotRunning)
	}
	defer response.Body.Close()
	var r reply
	if err := json.NewDecoder(response.Body).Decode(&r); err != nil {
		return fmt.Errorf("query the lab in %s: %w", c.folder, err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	if result != nil {
		return json.Unmarshal(r.Result, result)
	}
	return nil
}
