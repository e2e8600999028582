package redis

import (
	"io"
	"net"
	"strings"
	"testing"
)

func TestEndpointPing_ReportsError(t *testing.T) {
	open, closed := startRedis(t, ""), startRedis(t, "secret")
	echo, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	for title, test := range map[string]struct {
		endpoint Endpoint
		want     string // empty for success
	}{
		"no password needed": {Endpoint{Address: open.address()}, ""},
		"the right password": {Endpoint{Address: closed.address(), Credentials: Fixed("", "secret")}, ""},
		"a wrong password":   {Endpoint{Address: closed.address(), Credentials: Fixed("", "wrong")}, "WRONGPASS"},
		"no password":        {Endpoint{Address: closed.address()}, "NOAUTH"},
		"another server":     {Endpoint{Address: echo.Addr().String()}, "not a Redis server"},
		"closed port":        {Endpoint{Address: "127.0.0.1:1"}, "connect to Redis"},
	} {
		err := test.endpoint.Ping(t.Context())
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", title, err, test.want)
		}
	}
}
