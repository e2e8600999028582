package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// This file fills the quota of a cluster's etcd, and frees it again.

const (
	fillerPrefix   = "/lab/junk/"
	freeBeforeFill = 128 << 20 // free space before the filler
	junkSize       = 1 << 20   // size of one value. etcd accepts requests up to one and a half times as large
)

// FillDisk fills the etcd of a cluster: it restarts etcd with a quota slightly above the used size, and writes filler
// values. Then every write fails with "database space exceeded", until FreeDisk. Reads, watches and deletions still
// work.
func (c *Cluster) FillDisk(ctx context.Context) error {
	status, err := c.etcdStatus(ctx)
	if err != nil {
		return err
	}
	if err := c.lab.Restart(ctx, c.Component("etcd"), Flag("--quota-backend-bytes", strconv.Itoa(status.size+freeBeforeFill))); err != nil {
		return fmt.Errorf("fill the disk of %s: %w", c.Name, err)
	}
	value := bytes.Repeat([]byte("x"), junkSize)
	for i := range 100 * freeBeforeFill / junkSize { // free pages in the file take some values too
		err := c.etcdctl(ctx, value, nil, "put", fillerPrefix+strconv.Itoa(i))
		switch {
		case err == nil:
		case strings.Contains(err.Error(), "database space exceeded"):
			return nil
		default:
			return err
		}
	}
	return fmt.Errorf("fill the disk of %s: it never gets full", c.Name)
}

// FreeDisk frees space as an administrator does: it deletes the filler, compacts the history, defragments the file and
// disarms the alarm.
func (c *Cluster) FreeDisk(ctx context.Context) error {
	if err := c.etcdctl(ctx, nil, nil, "del", "--prefix", fillerPrefix); err != nil {
		return err
	}
	status, err := c.etcdStatus(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"compact", strconv.Itoa(status.revision)}, {"defrag"}, {"alarm", "disarm"}} {
		if err := c.etcdctl(ctx, nil, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

type etcdStatus struct{ size, revision int }

func (c *Cluster) etcdStatus(ctx context.Context) (etcdStatus, error) {
	var out bytes.Buffer
	if err := c.etcdctl(ctx, nil, &out, "endpoint", "status", "--write-out=json"); err != nil {
		return etcdStatus{}, err
	}
	var all []struct {
		Status struct {
			Header struct{ Revision int }
			DBSize int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || len(all) != 1 {
		return etcdStatus{}, fmt.Errorf("read the status of etcd of %s: %w: %s", c.Name, err, out.String())
	}
	return etcdStatus{size: all[0].Status.DBSize, revision: all[0].Status.Header.Revision}, nil
}

// etcdctl runs etcdctl with the given input. If output is not nil, it receives the output.
func (c *Cluster) etcdctl(ctx context.Context, input []byte, output *bytes.Buffer, args ...string) error {
	command := exec.CommandContext(ctx, c.lab.Spec.Tools.Binary("etcdctl"), append([]string{"--endpoints=" + c.EtcdURL, "--command-timeout=60s"}, args...)...)
	command.Dir = filepath.Dir(c.Kubeconfig)
	command.Stdin = bytes.NewReader(input)
	var both bytes.Buffer
	command.Stdout, command.Stderr = &both, &both
	if output != nil {
		command.Stdout = output
	}
	if err := command.Run(); err != nil {
		return fmt.Errorf("run etcdctl %s for %s: %w: %s", args[0], c.Name, err, both.String())
	}
	return nil
}
