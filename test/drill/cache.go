package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// readCache lets a user look at an Application in the UI of Argo CD, which reads keys of the agent's Redis through the Redis
// proxy of the principal.
func (d *drill) readCache(ctx context.Context) {
	a := d.some(anyApp)
	if a == nil || d.active != hubName { // the second hub has no Redis
		return
	}
	d.done("read the cache of "+a.String(), d.readKey(ctx, a.mode, a.name))
}

// unreadable returns the agents whose Redis cannot be read.
func (d *drill) unreadable(ctx context.Context) (found []string, err error) {
	if d.active != hubName {
		return nil, nil
	}
	for _, mode := range []string{managed, autonomous} {
		if err := d.readKey(ctx, mode, "any"); err != nil {
			found = append(found, "agent "+mode+": "+err.Error())
		}
	}
	return found, nil
}

// readKey reads a key of an agent's Redis through the hub. The key need not exist. It is one that the hub does not keep.
func (d *drill) readKey(ctx context.Context, mode, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", d.product.Live.Redis)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	var line string
	for _, words := range [][]string{{"AUTH", d.lab.Hub().Redis.Password}, {"GET", fmt.Sprintf("app|managed-resources|%s_%s|1.8.3", mode, name)}} {
		request := fmt.Appendf(nil, "*%d\r\n", len(words))
		for _, word := range words {
			request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
		}
		if _, err := conn.Write(request); err != nil {
			return fmt.Errorf("query Redis: %w", err)
		}
		if line, err = in.ReadString('\n'); err != nil {
			return fmt.Errorf("query Redis: %w", err)
		}
		if strings.HasPrefix(line, "-") {
			return errors.New("redis answers " + strings.TrimSpace(line))
		}
	}
	return nil
}
