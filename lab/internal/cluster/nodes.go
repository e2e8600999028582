package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
)

// LongRunning is the label of Job pods that run until they are deleted. Other Job pods complete immediately.
const LongRunning = "lab.argocd-agent/long-running"

// startNodes starts the simulated kubelet and creates its nodes. Pods become ready and log the content of the pod log
// file, also to attached clients. exec runs a shell of this machine, and every port echoes its input.
func (c *Cluster) startNodes(ctx context.Context) error {
	if c.Spec.Nodes == 0 {
		return nil
	}
	taken, err := c.newPorts(1)
	if err != nil {
		return err
	}
	serving, err := c.authority.Server("kwok")
	if err != nil {
		return err
	}
	config, err := c.writeKwokConfig()
	if err != nil {
		return err
	}
	c.State.KubeletServer = ports.Address(taken[0])
	kwok, err := c.start("kwok", "kwok", []string{"PS1=pod$ "},
		"--config="+config, "--kubeconfig="+c.State.Kubeconfig, "--manage-all-nodes",
		"--node-ip=127.0.0.1", "--node-port="+strconv.Itoa(taken[0]), "--server-address="+c.State.KubeletServer,
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key,
		"--node-lease-duration-seconds=40", "--enable-crds=",
	)
	if err != nil {
		return err
	}
	for i := range c.Spec.Nodes {
		if err := c.apply(ctx, fmt.Appendf(nil, nodeManifest, i)); err != nil {
			return err
		}
	}
	return kwok.WaitReady(ctx, c.allNodesReady)
}

const nodeManifest = `
apiVersion: v1
kind: Node
metadata:
  name: node-%[1]d
  labels:
    kubernetes.io/hostname: node-%[1]d
    kubernetes.io/os: linux
    kubernetes.io/arch: amd64
`

// writeKwokConfig writes the stages of pods and nodes, the logs and the exec target to one file.
func (c *Cluster) writeKwokConfig() (string, error) {
	var config []byte
	for _, folder := range []string{"pod/fast", "node/fast", "node/heartbeat-with-lease"} {
		files, err := c.lab.Tools.Files("kwok", "kustomize/stage/"+folder)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			stage, err := readStage(file)
			if err != nil {
				return "", err
			}
			config = fmt.Appendf(config, "---\n%s\n", stage)
		}
	}
	config = fmt.Appendf(config, kwokTargets, c.State.PodLog, c.State.PodLog)
	if err := AppendPodLog(c.State.PodLog, "this pod is simulated by the lab"); err != nil {
		return "", err
	}
	file := c.path("kwok.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return "", fmt.Errorf("write the configuration of kwok: %w", err)
	}
	return file, nil
}

const kwokTargets = `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata:
  name: all
spec:
  logs:
  - logsFile: %s
    follow: true
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata:
  name: all
spec:
  attaches:
  - logsFile: %s
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata:
  name: all
spec:
  execs:
  - local: {}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata:
  name: all
spec:
  forwards:
  - command: [cat]
`

// readStage reads a stage of kwok. The stage that completes Job pods skips those with label LongRunning.
func readStage(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a stage of kwok: %w", err)
	}
	var stage struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(content, &stage); err != nil || stage.Metadata.Name != "pod-complete" {
		return content, err
	}
	var whole map[string]any
	if err := yaml.Unmarshal(content, &whole); err != nil {
		return nil, fmt.Errorf("read the stage %s: %w", file, err)
	}
	selector := whole["spec"].(map[string]any)["selector"].(map[string]any)
	selector["matchExpressions"] = append(selector["matchExpressions"].([]any), map[string]any{
		"key": `.metadata.labels["` + LongRunning + `"]`, "operator": "NotIn", "values": []any{"true"},
	})
	return yaml.Marshal(whole)
}

// AppendPodLog adds a line to a pod log file, in the format of container runtimes.
func AppendPodLog(file, text string) error {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the pod log: %w", err)
	}
	defer log.Close()
	if _, err := fmt.Fprintf(log, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text); err != nil {
		return fmt.Errorf("write the pod log: %w", err)
	}
	return nil
}
