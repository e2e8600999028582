package redis

import (
	"context"
	"fmt"
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
		values, err := c.do(ctx, "SCAN", cursor, "MATCH", "argocd-agent|*", "COUNT", "1000")
		if err == nil && len(values) == 0 {
			err = protocolError("empty reply")
		}
		if err != nil {
			return fmt.Errorf("scan keys of agents: %w", err)
		}
		cursor = string(values[0])
		unlink := []string{"UNLINK"}
		for _, name := range values[1:] {
			if prefixes[prefixOf(string(name))] {
				unlink = append(unlink, string(name))
			}
		}
		if len(unlink) > 1 {
			if _, err := c.do(ctx, unlink...); err != nil {
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
