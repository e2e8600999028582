package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// tab is a tab of a headless Chromium, controlled with the DevTools protocol.
type tab struct {
	connection *websocket.Conn
	last       int // id of the last command
}

// openTab starts Chromium until ctx is done, with its files in a directory.
func openTab(ctx context.Context, folder string) (*tab, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("%w: install Debian package chromium", err)
	}
	// The sandbox does not work for root. The pages are those of the demo.
	cmd := exec.CommandContext(ctx, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--remote-debugging-port=0", "--user-data-dir="+filepath.Join(folder, "chromium"), "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "DevTools listening on ws://"); ok {
			go func() { _ = cmd.Wait() }()
			host, _, _ := strings.Cut(address, "/")
			return connectTab(ctx, host)
		}
	}
	return nil, fmt.Errorf("%s did not start: %w", program, errors.Join(cmd.Wait(), lines.Err()))
}

func connectTab(ctx context.Context, host string) (*tab, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+host+"/json/new?about:blank", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	defer answer.Body.Close()
	var target struct{ WebSocketDebuggerURL string }
	if err := json.NewDecoder(answer.Body).Decode(&target); err != nil {
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	connection, _, err := websocket.Dial(ctx, target.WebSocketDebuggerURL, nil) //nolint:bodyclose // the package closes the body
	if err != nil {
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	connection.SetReadLimit(32 << 20)
	t := &tab{connection: connection}
	return t, t.run(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 1600, "height": 900, "deviceScaleFactor": 0.75, "mobile": false}, &struct{}{})
}

// run executes a command of the DevTools protocol.
func (t *tab) run(ctx context.Context, method string, params map[string]any, result any) error {
	t.last++
	if err := wsjson.Write(ctx, t.connection, map[string]any{"id": t.last, "method": method, "params": params}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := wsjson.Read(ctx, t.connection, &answer); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		if answer.ID != t.last {
			continue // an event
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		}
		return json.Unmarshal(answer.Result, result)
	}
}

// screenshot opens a page, waits until it shows all texts, and returns a picture of it in PNG.
func (t *tab) screenshot(ctx context.Context, page string, texts []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := t.run(ctx, "Page.navigate", map[string]any{"url": page}, &struct{}{}); err != nil {
		return nil, err
	}
	for shown := ""; ; {
		var value struct{ Result struct{ Value string } }
		if err := t.run(ctx, "Runtime.evaluate", map[string]any{"expression": "document.body ? document.body.innerText : ''", "returnByValue": true}, &value); err != nil {
			return nil, fmt.Errorf("the page shows %q, want %q: %w", shown, texts, err)
		}
		shown = value.Result.Value
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(shown, text)
		}
		select { // the layout follows the text
		case <-ctx.Done():
			return nil, fmt.Errorf("the page shows %q, want %q: %w", shown, texts, context.Cause(ctx))
		case <-time.After(2 * time.Second):
		}
		if !missing {
			break
		}
	}
	var picture struct{ Data []byte }
	err := t.run(ctx, "Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	return picture.Data, err
}
