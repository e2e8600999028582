package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Purge deletes the keys of agents that are gone, given their prefixes. It scans all names once, in small steps.
func (t *Tenants) Purge(ctx context.Context, prefixes map[string]bool) error {
	conn, err := t.Redis.connect(ctx)
	if err != nil {
		return err
	}
	c := newRequestConn(conn, limits{bulk: t.Limits.withDefaults().Value, elements: 100_000, total: 64 << 20})
	defer c.close()
	for cursor := "0"; ; {
		reply, err := c.doRaw(ctx, 1, appendCommand(nil, "SCAN", cursor, "MATCH", "argocd-agent|*", "COUNT", "1000"))
		var names []string
		if err == nil {
			cursor, names, err = decodeScan(reply[0])
		}
		if err != nil {
			return fmt.Errorf("scan keys of agents: %w", err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !prefixes[prefixOf(name)] })
		if len(names) > 0 {
			if _, err := c.do(ctx, append([]string{"UNLINK"}, names...)...); err != nil {
				return fmt.Errorf("delete keys of agents: %w", err)
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// prefixOf returns the part of a key that names the agent.
func prefixOf(name string) string {
	first := strings.IndexByte(name, '|')
	second := strings.IndexByte(name[first+1:], '|')
	return name[:first+1+second+1]
}

// decodeScan reads the reply to SCAN.
func decodeScan(reply []byte) (cursor string, names []string, err error) {
	count, at, err := decodeLength(reply)
	if err != nil || count != 2 || reply[0] != '*' {
		if _, err := decode(reply); err != nil {
			return "", nil, err
		}
		return "", nil, protocolError("unexpected reply to SCAN")
	}
	first, n, err := decodeOne(reply[at:])
	if err != nil {
		return "", nil, err
	}
	list, err := decode(reply[at+n:])
	for _, name := range list {
		names = append(names, string(name))
	}
	return string(first), names, err
}
