package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Purge removes what agents have kept that are gone for good, given their prefixes. It goes through all names once,
// however many agents are meant, in steps that hold nobody up.
func (t *Tenants) Purge(ctx context.Context, prefixes map[string]bool) error {
	conn, err := t.Redis.connect(ctx)
	if err != nil {
		return err
	}
	c := newClient(conn, limits{bulk: t.Limits.withDefaults().Value, elements: 100_000, total: 64 << 20})
	defer c.shut()
	for cursor := "0"; ; {
		reply, err := c.do(ctx, "SCAN", cursor, "MATCH", "argocd-agent|*", "COUNT", "1000")
		if err != nil {
			return err
		}
		next, names, err := scanned(reply)
		if err != nil {
			return fmt.Errorf("look for what agents have left: %w", err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !prefixes[prefixOf(name)] })
		if len(names) > 0 {
			reply, err := c.do(ctx, append([]string{"UNLINK"}, names...)...)
			if err == nil {
				_, err = bulks(reply)
			}
			if err != nil {
				return fmt.Errorf("remove what agents have left: %w", err)
			}
		}
		if cursor = next; cursor == "0" {
			return nil
		}
	}
}

// prefixOf is the part of a tenant's name that says whose it is.
func prefixOf(name string) string {
	first := strings.IndexByte(name, '|')
	second := strings.IndexByte(name[first+1:], '|')
	return name[:first+1+second+1]
}

// scanned reads the answer to SCAN: where to go on, and names.
func scanned(reply []byte) (cursor string, names []string, err error) {
	if len(reply) == 0 || reply[0] != '*' {
		if _, err = bulks(reply); err == nil { // else that is what Redis says
			err = protocolError("no answer to SCAN")
		}
		return "", nil, err
	}
	count, at, err := header(reply)
	if err != nil || count != 2 || at == 0 {
		return "", nil, protocolError("no answer to SCAN")
	}
	first, n, err := bulk(reply[at:])
	if err != nil {
		return "", nil, err
	}
	list, err := bulks(reply[at+n:])
	if err != nil {
		return "", nil, err
	}
	for _, name := range list {
		names = append(names, string(name))
	}
	return string(first), names, nil
}
