package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
)

// startRedis starts the Redis of the cluster with a password, and stores the password in the Secret of Argo CD.
func (c *Cluster) startRedis(ctx context.Context) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("find redis-server (apt-get install redis-server): %w", err)
	}
	taken, err := c.newPorts(1)
	if err != nil {
		return err
	}
	c.State.Redis = model.Redis{Address: ports.Address(taken[0]), Password: newPassword()}
	config := c.path("redis.conf")
	settings := fmt.Sprintf("bind 127.0.0.1\nport %d\nrequirepass %s\nsave \"\"\nappendonly no\n", taken[0], c.State.Redis.Password)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return fmt.Errorf("write the configuration of Redis: %w", err)
	}
	secret := fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: argocd-redis, namespace: argocd}, stringData: {auth: %q}}",
		c.State.Redis.Password)
	if err := c.apply(ctx, []byte(secret)); err != nil {
		return err
	}
	redis, err := c.startProgram("redis", program, "redis-server", nil, config)
	if err != nil {
		return err
	}
	return redis.WaitReady(ctx, TCPProbe(c.State.Redis.Address))
}
