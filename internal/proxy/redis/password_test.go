package redis

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRequirePassword_RefusesWrongPassword(t *testing.T) {
	for name, c := range map[string]struct{ send, replies, passes string }{
		"AUTH":             {string(appendCommand(appendCommand(nil, "AUTH", "secret"), "GET", "x")), "+OK\r\n", string(appendCommand(nil, "GET", "x"))},
		"AUTH with a name": {string(appendCommand(nil, "auth", "default", "secret")), "+OK\r\n", ""},
		"HELLO":            {string(appendCommand(appendCommand(nil, "HELLO", "3", "AUTH", "default", "secret", "SETNAME", "x"), "PING")), "", string(appendCommand(appendCommand(nil, "HELLO", "3"), "PING"))},
		"second attempt":   {string(appendCommand(appendCommand(nil, "AUTH", "guess"), "AUTH", "secret")), "-WRONGPASS", ""},
		"wrong":            {string(appendCommand(nil, "AUTH", "guess")), "-WRONGPASS", "none"},
		"wrong HELLO":      {string(appendCommand(nil, "HELLO", "3", "AUTH", "default", "x")), "-WRONGPASS", "none"},
		"HELLO alone":      {string(appendCommand(nil, "HELLO", "3")), "-NOAUTH", "none"},
		"GET":              {string(appendCommand(nil, "GET", "x")), "-NOAUTH", "none"},
		"inline":           {"GET x\r\n", "-ERR Protocol error", "none"},
		"QUIT":             {string(appendCommand(nil, "QUIT")), "+OK\r\n", "none"},
		"long":             {"*2\r\n$4\r\nAUTH\r\n$100000\r\n", "-ERR Protocol error", "none"},
		"many":             {"*100\r\n", "-ERR Protocol error", "none"},
		"nonsense":         {"\x16\x03\x01", "", "none"},
		"AUTH of nothing":  {string(appendCommand(nil, "AUTH", "")), "-WRONGPASS", "none"},
	} {
		near, far := tunnel(t)
		heard := make(chan string)
		go func() {
			_, _ = near.Write([]byte(c.send))
			if half, ok := near.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			all, _ := io.ReadAll(near)
			heard <- string(all)
		}()
		conn, err := RequirePassword(far, "secret")
		if passed := err == nil; passed != (c.passes != "none") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if rest, _ := io.ReadAll(conn); string(rest) != c.passes {
				t.Errorf("%s: %q passes", name, rest)
			}
		}
		_ = far.Close()
		if got := <-heard; !strings.HasPrefix(got, c.replies) || c.replies == "" && got != "" {
			t.Errorf("%s: answered %q", name, got)
		}
	}
	near, far := tunnel(t)
	go func() {
		WriteError(far, errors.New("the hub\r\nis gone"))
		_ = far.Close()
	}()
	if got, _ := io.ReadAll(near); string(got) != "-ERR no connection to the hub's Redis: the hub  is gone\r\n" {
		t.Errorf("%q", got)
	}
}
